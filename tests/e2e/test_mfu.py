"""`mfu` is a part of the fastest that the host has been seen to compute: rank 0 reports what it measures, and the executor
keeps the highest figure in its directory, over a restart, too."""

import pathlib

from service_fixture import Service, wait_until


def largest_mfu(service, spec):
    job = service.submit(spec)
    service.wait_end(job)
    values = [value for _, value in sorted(service.metric(job, "mfu").items())]
    assert values and all(0 < value <= 1 for value in values), values
    return max(values)


def test_mfu_is_a_part_of_the_highest_rate_that_the_host_has_shown(tmp_path, tiny):
    service = Service(tmp_path / "service", executors=1, slots=1)
    service.start()
    try:
        before = largest_mfu(service, tiny(steps=5))
        [peaks] = pathlib.Path(service.directory).rglob("peaks")
        [line] = wait_until(lambda: peaks.read_text().splitlines(), 10, "a figure")
        flops, key = line.split(" ", 1)
        assert float(flops) > 1e8 and "fp32" in key and "thread" in key, line
        service.stop()
        peaks.write_text(f"{1000 * float(flops):.4e} {key}\n")
        service.start()
        assert largest_mfu(service, tiny(steps=5)) < before / 10
        assert peaks.read_text() == f"{1000 * float(flops):.4e} {key}\n"  # what is measured now is less
    finally:
        service.stop()
