# For NVIDIA GPUs (needs NVIDIA's container toolkit), with your own code, and memory that workers of data loaders share:
#   docker build -t breakeven .
#   docker run --gpus all --shm-size 8g -p 127.0.0.1:8501:8501 -v breakeven-data:/data \
#     -v "$PWD":/code:ro -e BREAKEVEN_CODE=/code \
#     --read-only --tmpfs /tmp:exec --cap-drop ALL --security-opt no-new-privileges breakeven
# Libraries that runs compile are loaded from /tmp, so it is mounted with `exec`. Runs on several GPUs need `--ipc=host` in place of `--shm-size`.
# A command: docker run --gpus all ... -w /code breakeven breakeven run train.py
# Without CUDA, about 3 GB in place of 7: docker build -t breakeven:cpu --build-arg TORCH=cpu .
FROM python:3.13-slim
ARG TORCH=cuda

# Inductor and Triton compile at run time, so the compiler stays in the image. Chromium draws the pictures
# that charts and slides are downloaded as.
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ chromium fonts-dejavu-core \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 breakeven \
 && install -d -o breakeven /data

WORKDIR /app
COPY requirements.lock .
# PyTorch's own index has the builds without CUDA, of the same version and without hashes in our lock.
RUN if [ "$TORCH" = cpu ]; then \
      version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' requirements.lock); \
      pip install --no-cache-dir --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$version+cpu"; \
      awk '/^[^ #]/{keep = !/^(torch==|triton==|nvidia-|cuda-)/} keep' requirements.lock > /tmp/lock; \
    else cp requirements.lock /tmp/lock; fi \
 && pip install --no-cache-dir --no-deps --require-hashes -r /tmp/lock \
 && rm /tmp/lock
COPY . .
# The command, from the code in /app, wherever it is typed.
RUN echo /app > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/breakeven.pth" \
 && printf '#!/bin/sh\nexec python -P -m breakeven "$@"\n' > /usr/local/bin/breakeven \
 && chmod 755 /usr/local/bin/breakeven

USER breakeven
# Inside a container all addresses have to be listened on; then others may look. Who opens the secret
# link of `docker logs` acts.
ENV BREAKEVEN_DATA=/data \
    BREAKEVEN_HOST=0.0.0.0 \
    HF_HOME=/data/huggingface \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
VOLUME /data
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8501/_stcore/health', timeout=4)"]
CMD ["breakeven"]
