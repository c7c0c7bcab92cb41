"""The models of benchmark suites: each module has a function `load`, which builds one with its
random samples."""
