//! Operations on the account: the list of containers, and information about the account.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::container::{BlobContainer, BlobMetadata};
use lanyard_emulator_state::storage::lease::Lease;

use super::access::authorize_account;
use super::error::BlobErrorCode;
use super::http_date::http_date;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::request_headers::{parse_include, parse_page_size};
use super::xml_writer::XmlWriter;

/// The size of a page, unless the client requests a smaller one.
pub(super) const MAX_PAGE_ITEMS: usize = 5_000;

/// `GET /?comp=list`
pub(super) fn list_containers(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (host, _) = authorize_account(call, &BlobPermission::LIST_CONTAINERS)?;
    let request = call.request;
    let include = parse_include(request, &["metadata", "deleted", "system"])?;
    let most = parse_page_size(request, MAX_PAGE_ITEMS)?;
    let prefix = request.query("prefix").unwrap_or_default();
    let marker = request.query("marker").unwrap_or_default();
    // Names with `$` are listed only on request.
    let is_listed =
        |name: &str| include.contains(&"system") || !name.starts_with('$') || name == "$web";
    let mut found = call
        .azure()
        .storage
        .containers(&host, prefix.max(marker))
        .take_while(|(key, _)| key.name.starts_with(prefix))
        .filter(|(key, _)| is_listed(&key.name));
    let mut xml = XmlWriter::document();
    let endpoint = format!("{}/", request.origin());
    xml.open_with_attributes("EnumerationResults", &[("ServiceEndpoint", &endpoint)]);
    xml.optional_element("Prefix", request.query("prefix"));
    xml.optional_element("Marker", request.query("marker"));
    xml.optional_element("MaxResults", request.query("maxresults"));
    xml.open("Containers");
    for (key, container) in found.by_ref().take(most) {
        xml.open("Container");
        xml.element("Name", &key.name);
        write_container_properties(&mut xml, container, call.now);
        if include.contains(&"metadata") {
            write_metadata(&mut xml, &container.metadata);
        }
        xml.close("Container");
    }
    xml.close("Containers");
    xml.element("NextMarker", found.next().map_or("", |(key, _)| &key.name));
    xml.close("EnumerationResults");
    Ok(xml_reply(StatusCode::OK, xml))
}

fn write_container_properties(
    xml: &mut XmlWriter,
    container: &BlobContainer,
    now: jiff::Timestamp,
) {
    xml.open("Properties");
    xml.element("Last-Modified", http_date(container.last_modified));
    xml.element("Etag", format!("\"{}\"", container.etag));
    write_lease(xml, &container.lease, now);
    xml.optional_element("PublicAccess", container.public_access.header_value());
    xml.element("DefaultEncryptionScope", "$account-encryption-key");
    xml.element("DenyEncryptionScopeOverride", "false");
    xml.element("HasImmutabilityPolicy", "false");
    xml.element("HasLegalHold", "false");
    xml.element("ImmutableStorageWithVersioningEnabled", "false");
    xml.close("Properties");
}

pub(super) fn write_lease(xml: &mut XmlWriter, lease: &Lease, now: jiff::Timestamp) {
    let state = lease.state_at(now);
    xml.element("LeaseStatus", state.status());
    xml.element("LeaseState", state.name());
    xml.optional_element("LeaseDuration", state.duration());
}

pub(super) fn write_metadata(xml: &mut XmlWriter, metadata: &BlobMetadata) {
    xml.open("Metadata");
    for (name, value) in metadata {
        xml.element(name, value);
    }
    xml.close("Metadata");
}

/// `GET` of any resource with `restype=account&comp=properties`
pub(super) fn get_account_information(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (host, _) = authorize_account(call, &BlobPermission::GET_ACCOUNT_INFORMATION)?;
    let account = call.azure().storage.account(&host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    Ok(ServiceReply::empty(StatusCode::OK)
        .with_header("x-ms-sku-name", &account.settings.sku)
        .with_header("x-ms-account-kind", &account.settings.kind)
        .with_header("x-ms-is-hns-enabled", "false"))
}
