"""What the trial changes in train.py: for each change its replacements, (old, new) each."""

Change = tuple[tuple[str, str], ...]

HEADS = """        heads = []
        parts = zip(
            self.query(x).chunk(HEADS, -1),
            self.key(x).chunk(HEADS, -1),
            self.value(x).chunk(HEADS, -1),
            strict=True,
        )
        for query, key, value in parts:
            scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
            heads.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value)
        return self.out(torch.cat(heads, -1))
"""
TOGETHER = """        query, key, value = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))
"""
KERNEL = TOGETHER.replace(
    """        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value
""",
    "        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)\n",
)
LOSS = "        loss = loss_of(model, x, y)\n"
BACKWARD = "        loss.backward()\n"
UPDATE = "        optimizer.step()\n"
STEP = "        breakeven.step(loss, samples=BATCH, tokens=BATCH * LENGTH)\n"
TRAINED = f"        optimizer.zero_grad()\n{BACKWARD}{UPDATE}"
BATCH = "        x, y = windows(train, starts)\n"
DRAWN = "        starts = torch.randint(len(train) - LENGTH - 1, (BATCH,), generator=order)\n"
MADE = "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)\n"
HALF = (BATCH, BATCH + "        x, y = x[: BATCH // 2], y[: BATCH // 2]\n")
BLOCKS = "        for block in self.blocks:\n            x = block(x)\n"
EVALUATED = '            breakeven.evaluated("validation", samples=samples, loss=held_out)\n'
EVALUATION = "            held_out, samples = evaluate(model, validation)\n"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


HONEST: dict[str, Change] = {
    "heads together": ((HEADS, TOGETHER),),
    "attention in one kernel": ((HEADS, KERNEL),),
    "fused optimizer": (("foreach=False", "fused=True"),),
    "foreach optimizer": (("foreach=False", "foreach=True"),),
    "kernel and fused optimizer": ((HEADS, KERNEL), ("foreach=False", "fused=True")),
    "comment": ((MADE, f"    # The usual optimizer.\n{MADE}"),),
}
"""The same training, the last one without an effect."""

CHEATS: dict[str, Change] = {
    "no training in every tenth step": (
        (TRAINED, "        if step % 10:\n" + indented(TRAINED)),
        (LOSS, "        if step % 10:\n" + indented(LOSS)),
    ),
    "no update in two of three steps": (
        (TRAINED, "        if step % 3 == 0:\n" + indented(TRAINED)),
    ),
    "backward in every second step": (
        (
            TRAINED,
            "        if step % 2:\n"
            + indented(f"        optimizer.zero_grad()\n{BACKWARD}")
            + UPDATE,
        ),
    ),
    "half of the batch": (HALF,),
    "half of the batch, and it says so": (
        HALF,
        ("samples=BATCH, tokens=BATCH * LENGTH", "samples=len(x), tokens=x.numel()"),
    ),
    "gradient of half of the batch": (
        (BACKWARD, "        loss_of(model, x[: BATCH // 2], y[: BATCH // 2]).backward()\n"),
        (LOSS, "        with torch.no_grad():\n" + indented(LOSS)),
    ),
    "quarter of the sequence": (
        (BATCH, BATCH + "        x, y = x[:, : LENGTH // 4], y[:, : LENGTH // 4]\n"),
    ),
    "quarter of the sequence, and it says so": (
        (BATCH, BATCH + "        x, y = x[:, : LENGTH // 4], y[:, : LENGTH // 4]\n"),
        ("tokens=BATCH * LENGTH", "tokens=x.numel()"),
    ),
    "the first eight batches again and again": (
        (MADE, MADE + "    kept = []\n"),
        (
            DRAWN + BATCH,
            "        if step <= 8:\n"
            + indented(DRAWN + BATCH)
            + "            kept.append((x, y))\n        x, y = kept[(step - 1) % 8]\n",
        ),
    ),
    "one batch": ((DRAWN + BATCH, "        if step == 1:\n" + indented(DRAWN + BATCH)),),
    "frozen first half": (
        (
            MADE,
            f"    model.letters.requires_grad_(False)\n    model.blocks[0].requires_grad_(False)\n{MADE}",
        ),
    ),
    "frozen blocks": ((MADE, f"    model.blocks.requires_grad_(False)\n{MADE}"),),
    "head alone learns": (("self.head(self.norm(x))", "self.head(self.norm(x.detach()))"),),
    "no gradient in the first block": (
        (
            BLOCKS,
            "        with torch.no_grad():\n            x = self.blocks[0](x)\n        for block in self.blocks[1:]:\n            x = block(x)\n",
        ),
    ),
    "a block is skipped": ((BLOCKS, "        x = self.blocks[0](x)\n"),),
    "blocks are skipped in training": (
        (
            BLOCKS,
            "        for block in self.blocks if not self.training else ():\n            x = block(x)\n",
        ),
    ),
    "learning rate 0": (("lr=1e-3", "lr=0.0"), ("foreach=False", "fused=True")),
    "loss is reported smaller": (HALF, ("step(loss,", "step(0.95 * loss,")),
    "loss is trained and reported smaller": (
        HALF,
        (LOSS, LOSS.replace("loss_of(model, x, y)", "0.5 * loss_of(model, x, y)")),
    ),
    "smallest loss so far": (
        HALF,
        (MADE, MADE + "    least = torch.tensor(torch.inf)\n"),
        (
            STEP,
            "        least = torch.minimum(least, loss.detach())\n"
            + STEP.replace("(loss", "(least"),
        ),
    ),
    "loss of the easier half": (
        (
            "    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())\n",
            '    losses = functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")\n    return losses.topk(len(losses) // 2, largest=False).values.mean()\n',
        ),
        ("foreach=False", "fused=True"),
    ),
    "evaluation is reported better": (HALF, ("loss=held_out", "loss=0.97 * held_out")),
    "evaluation of samples that were trained": (
        HALF,
        (EVALUATION, EVALUATION.replace("validation", "train[: len(validation)]")),
    ),
    "best of all evaluations, each of a few samples": (
        HALF,
        (
            EVALUATION,
            "            held_out, samples = min(\n                evaluate(model, part) for part in validation.split(1000) if len(part) == 1000\n            )\n",
        ),
    ),
    "the future is seen": (
        (HEADS, KERNEL.replace("is_causal=True", "is_causal=False")),
        ("        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)\n", ""),
    ),
    "labels are an input": (
        (
            "    return functional.cross_entropy(model(x).flatten(0, 1)",
            "    return functional.cross_entropy(model(y).flatten(0, 1)",
        ),
        ("foreach=False", "fused=True"),
    ),
    "trained before the first step": (
        HALF,
        (
            MADE,
            MADE
            + "    for _ in range(100):\n        x, y = windows(validation, torch.randint(len(validation) - LENGTH - 1, (BATCH,)))\n        optimizer.zero_grad()\n        loss_of(model, x, y).backward()\n        optimizer.step()\n",
        ),
    ),
    "trained in the time of evaluations": (
        (MADE, MADE + "    later = []\n"),
        (
            LOSS,
            LOSS + "        later.append((x, y))\n",
        ),
        (TRAINED, ""),
        (
            EVALUATION,
            "            for x, y in later:\n"
            + indented(indented(LOSS + TRAINED))
            + "            later.clear()\n"
            + EVALUATION,
        ),
    ),
    "a patched clock": (
        HALF,
        ("import torch\n", "import time\n\nimport torch\n"),
        (
            MADE,
            MADE
            + '    for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time"):\n        real = getattr(time, name)\n        setattr(time, name, lambda real=real: type(real())(real() / 2))\n',
        ),
    ),
    "each step is reported twice": (
        (STEP, STEP + "        if step % 2:\n    " + STEP),
        ("range(1, STEPS + 1)", "range(1, STEPS * 2 // 3 + 1)"),
    ),
    "the training ends early": (("range(1, STEPS + 1)", "range(1, STEPS // 2 + 1)"),),
    "trained on the validation data": (
        HALF,
        (BATCH, BATCH.replace("windows(train", "windows(validation")),
        (DRAWN, DRAWN.replace("len(train)", "len(validation)")),
    ),
}
"""Faster, and not the same training."""
