//! Replies of the Blob service.

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use jiff::Timestamp;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::blob_etag::BlobEtag;
use lanyard_emulator_state::storage::container::{BlobContainer, BlobMetadata};
use lanyard_emulator_state::storage::lease::Lease;

use super::http_date::http_date;
use super::xml_writer::XmlWriter;

/// A reply with an XML document.
pub(super) fn xml_reply(status: StatusCode, xml: XmlWriter) -> ServiceReply {
    xml.into_reply(ServiceReply::empty(status))
}

/// A reply with the entity tag and the modification time of a resource.
pub(super) fn reply_with_etag(
    status: StatusCode,
    etag: BlobEtag,
    modified: Timestamp,
) -> ServiceReply {
    with_etag(ServiceReply::empty(status), etag, modified)
}

pub(super) fn with_etag(reply: ServiceReply, etag: BlobEtag, modified: Timestamp) -> ServiceReply {
    reply
        .with_header("etag", format!("\"{etag}\""))
        .with_header("last-modified", http_date(modified))
}

/// A reply with the entity tag and the modification time of a container.
pub(super) fn container_reply(status: StatusCode, container: &BlobContainer) -> ServiceReply {
    reply_with_etag(status, container.etag, container.last_modified)
}

/// Adds the header if there is a value.
pub(super) fn with_optional_header(
    reply: ServiceReply,
    name: &'static str,
    value: Option<impl AsRef<str>>,
) -> ServiceReply {
    match value {
        Some(value) => reply.with_header(name, value),
        None => reply,
    }
}

/// Adds the headers `x-ms-meta-*`.
pub(super) fn with_metadata(mut reply: ServiceReply, metadata: &BlobMetadata) -> ServiceReply {
    for (name, value) in metadata {
        let name = HeaderName::from_bytes(format!("x-ms-meta-{name}").as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            reply.headers.append(name, value);
        }
    }
    reply
}

/// Adds the headers of a lease.
pub(super) fn with_lease(reply: ServiceReply, lease: &Lease, now: Timestamp) -> ServiceReply {
    let state = lease.state_at(now);
    let reply = reply
        .with_header("x-ms-lease-state", state.name())
        .with_header("x-ms-lease-status", state.status());
    with_optional_header(reply, "x-ms-lease-duration", state.duration())
}
