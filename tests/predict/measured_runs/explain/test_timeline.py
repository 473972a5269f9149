"""Steps of a trace on a device."""

from predict.measured_runs.explain.timeline import Steps, Window, device_windows
from sampling.importers.torch_trace.events import Kernel


def test_the_last_step_of_a_device_ends_as_long_after_its_kernels_as_the_others() -> None:
    windows = tuple(Window(10.0 * step, 10.0 * step + 10.0) for step in range(3))
    kernels = [
        Kernel(name="k", duration_us=6.0, arguments={}, op=None, start_us=start_us, launched_us=start_us - 1.0)
        for start_us in (2.0, 12.0, 24.0)
    ]

    def found(of: list[Kernel]) -> list[tuple[float, float]]:
        return [(each.start_us, each.end_us) for each in device_windows(Steps(windows=windows, rule=""), of)]

    assert found(kernels) == [(2.0, 12.0), (12.0, 24.0), (24.0, 35.0)]
    assert found(kernels[:1]) == [(2.0, 8.0)]
