"""Builds many outputs in parallel processes, none of which outlives this one."""

import concurrent.futures
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool

from modalities_pipeline.exceptions import RunningEnvError
from modalities_pipeline.orchestration.supervise import die_with_parent

_GRACE_IN_S = 5.0
_THREAD_COUNTS = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS")  # of libraries with threads of their own

_num_cpus = os.cpu_count() or 1


def num_cpus() -> int:
    """CPUs that this process may keep busy: all of the machine's, or in a worker its share of them."""
    return _num_cpus


def run_in_processes(builds: Sequence[Callable[[], object]], num_workers: int) -> Iterator[int]:
    """Call all of `builds`, which must be picklable, in `num_workers` processes; yields how many are done.

    The first failure is raised and ends all workers at once, like whatever interrupts the iteration.

    Raises:
        RunningEnvError: a worker process died.
    """
    others = set(multiprocessing.active_children())
    arguments = (os.getpid(), max(num_cpus() // num_workers, 1))
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks that Dagster's threads hold
    with concurrent.futures.ProcessPoolExecutor(num_workers, context, _start_worker, arguments) as pool:
        try:
            futures = [pool.submit(build) for build in builds]
            for num_done, future in enumerate(concurrent.futures.as_completed(futures), start=1):
                future.result()
                yield num_done
        except BrokenProcessPool:
            raise RunningEnvError(
                "A worker process died while it built an output; perhaps the machine ran out of memory. Use fewer "
                "workers (run config: resources.policy.config.num_workers), or give the machine more memory."
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers = set(multiprocessing.active_children()) - others
            for process in workers:
                process.terminate()  # they remove what they had begun to write
            for process in workers:
                process.join(_GRACE_IN_S)
                process.kill()
                process.join()
            raise


def _start_worker(parent: int, share_of_cpus: int) -> None:
    global _num_cpus
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked to tell
        os._exit(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _num_cpus = share_of_cpus
    os.environ.update(dict.fromkeys(_THREAD_COUNTS, str(share_of_cpus)))
