"""Commands that read the database. `storage/` runs them; `breakeven --help` lists them here."""

STORED = {
    "show": "print what an experiment, a repetition or a suite run came to",
    "explain": "say why each backend is faster or slower",
    "ladder": "name the stage of the compiler that fails, computes wrongly or loses time",
    "trend": "tell how the same training fared over time, and its steps",
    "difference": "hold experiments against each other: the first is what others are compared with",
    "compile-diff": "tell what the compiler did otherwise in one run than in another",
    "report": "write experiments whole into one HTML file",
    "export": "write an experiment in a format of PyTorch's benchmarks",
    "import": "take in reports, archives of run folders, and results of PyTorch's benchmarks",
    "team": "look after the store that the settings name (docs/team-store.md)",
}
