"""An ingestion process: `python -m foreshore.storage.ingest.main --listen unix:PATH --lifeline`."""

import click

from foreshore.storage.external.process import run
from foreshore.storage.ingest.messages import Command
from foreshore.storage.ingest.worker import Worker


@click.command()
@click.option("--listen", "address", required=True, help="unix:PATH.")
@click.option("--lifeline", is_flag=True, required=True, help="End when standard input does.")
def main(address: str, lifeline: bool) -> None:
    """Run the sources of a cluster."""
    run(address, Worker, Command, "ingest")


if __name__ == "__main__":
    main()
