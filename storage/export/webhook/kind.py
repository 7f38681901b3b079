"""URLs as a kind of target."""

from foreshore import blocking
from foreshore.errors import FeatureNotSupported
from foreshore.sinks.webhook import WebhookTarget
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.messages import Export
from foreshore.storage.export.webhook.address import addresses_of, place_of
from foreshore.storage.export.webhook.exporter import WebhookExporter


class WebhookSinkKind:
    """URLs."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return WebhookExporter(export)

    async def check(self, export: Export) -> None:
        """Check headers and the host; raises if one is wrong or not allowed. Nothing is sent."""
        target = export.spec.target
        assert isinstance(target, WebhookTarget), target
        if export.spec.envelope != "append":
            raise FeatureNotSupported(
                f"ENVELOPE {export.spec.envelope.upper()} is not for webhooks", hint="Use APPEND."
            )
        WebhookExporter(export)  # raises for headers that cannot be sent
        place, private = place_of(target.url), target.private
        await blocking.run(None, lambda: addresses_of(place, private=private))


KIND = WebhookSinkKind()
