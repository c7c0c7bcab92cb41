from pathlib import Path

from breakeven.runner.machine.capabilities import seen, shows_gpu


def test_what_is_seen_is_devices_their_driver_and_what_hides_some_of_them(tmp_path: Path) -> None:
    assert seen({"HOME": "/root"}, tmp_path) == ()
    driver = tmp_path / "proc/driver/nvidia"
    for address in ("0000:81:00.0", "0000:01:00.0"):
        (driver / "gpus" / address).mkdir(parents=True)
    (driver / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
    )
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    assert seen({"CUDA_VISIBLE_DEVICES": "", "HOME": "/root"}, tmp_path) == (
        "gpu proc/driver/nvidia/gpus/0000:01:00.0",
        "gpu proc/driver/nvidia/gpus/0000:81:00.0",
        "device file dev/nvidia0",
        "driver 580.159.04",
        "CUDA_VISIBLE_DEVICES=",
    )


def test_a_gpu_is_there_whether_its_driver_or_its_device_file_shows_it() -> None:
    assert shows_gpu(("gpu proc/driver/nvidia/gpus/0000:01:00.0",))
    assert shows_gpu(("device file dev/nvidia0",))
    assert not shows_gpu(("driver 580.159.04", "CUDA_VISIBLE_DEVICES=0"))
