"""`make paper`: runs the paper's experiments and writes the report; docs/results.md says how."""

from collections.abc import Sequence

from benchmarks.lab import use_threads
from benchmarks.paper.executing import execute, missing_jobs
from benchmarks.paper.jobs import SERVICE
from benchmarks.paper.planning import parsed, planned, ray_options
from benchmarks.paper.progress import progress
from benchmarks.paper.report import write_report
from benchmarks.paper.runs import RunsFile
from benchmarks.paper.summary import selected, table_summary
from benchmarks.paper.tables import smoke_warning


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, then report all there is."""
    options = parsed(arguments)
    plan, runs = planned(options), RunsFile(options.runs)
    if not options.report_only:
        use_threads(options.threads)
        jobs = missing_jobs(plan.jobs, runs)
        print(f"{len(plan.jobs)} runs, {len(plan.jobs) - len(jobs)} of them in {runs.path}")
        with progress(len(jobs)) as shown:
            on_ray = ray_options(options)
            processes = options.processes or 0
            execute(jobs, runs, shown, options.parallel, processes, options.threads, on_ray)
    kind = SERVICE if options.via else options.device.partition(":")[0]
    found = selected(runs.records(), kind, options.rounds, options.recipe)
    write_report(found, plan.datasets, plan.has_pairs, options.out)
    print(f"The report: {options.out.with_suffix('.md')}, {options.out}")
    for warning in dict.fromkeys(
        smoke_warning(table_summary(found, each)) for each in plan.datasets
    ):
        if warning is not None:
            print(warning)


if __name__ == "__main__":
    main()
