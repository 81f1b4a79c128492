//! The properties of the Blob service of an account.
//!
//! Reference: "Get Blob Service Properties", "Set Blob Service Properties". Analytics settings are stored and
//! returned; the emulator writes no logs and no metrics into the account.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::blob_service_properties::{
    BlobServiceProperties, LoggingProperties, MetricsProperties, RetentionPolicy,
};
use lanyard_emulator_state::storage::container::BlobContainer;
use lanyard_emulator_state::storage::names::WEB_CONTAINER;
use lanyard_emulator_state::storage::store::ContainerKey;

use super::access::authorize_account;
use super::error::BlobErrorCode;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::xml_body::parse_xml;
use super::xml_writer::XmlWriter;

/// `GET /?restype=service&comp=properties`
pub(super) fn get_service_properties(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (host, _) = authorize_account(call, &BlobPermission::GET_SERVICE_PROPERTIES)?;
    let account = call.azure().storage.account(&host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    let properties = &account.properties;
    let mut xml = XmlWriter::document();
    xml.open("StorageServiceProperties");
    write_logging(&mut xml, &properties.logging.clone().unwrap_or_default());
    write_metrics(&mut xml, "HourMetrics", &properties.hour_metrics.clone().unwrap_or_default());
    let minute_metrics = properties.minute_metrics.clone().unwrap_or_default();
    write_metrics(&mut xml, "MinuteMetrics", &minute_metrics);
    xml.open("Cors");
    xml.close("Cors");
    xml.optional_element("DefaultServiceVersion", properties.default_service_version.as_ref());
    let retention = properties.delete_retention_policy.clone().unwrap_or_default();
    write_retention_policy(&mut xml, "DeleteRetentionPolicy", &retention);
    let website = properties.static_website.clone().unwrap_or_default();
    xml.open("StaticWebsite");
    xml.element("Enabled", website.enabled.to_string());
    xml.optional_element("IndexDocument", website.index_document);
    xml.optional_element("DefaultIndexDocumentPath", website.default_index_document_path);
    xml.optional_element("ErrorDocument404Path", website.error_document);
    xml.close("StaticWebsite");
    xml.close("StorageServiceProperties");
    Ok(xml_reply(StatusCode::OK, xml))
}

fn write_logging(xml: &mut XmlWriter, logging: &LoggingProperties) {
    xml.open("Logging");
    xml.element("Version", version_text(&logging.version));
    xml.element("Delete", logging.delete.to_string());
    xml.element("Read", logging.read.to_string());
    xml.element("Write", logging.write.to_string());
    write_retention_policy(xml, "RetentionPolicy", &logging.retention_policy);
    xml.close("Logging");
}

fn write_metrics(xml: &mut XmlWriter, name: &str, metrics: &MetricsProperties) {
    xml.open(name);
    xml.element("Version", version_text(&metrics.version));
    xml.element("Enabled", metrics.enabled.to_string());
    xml.optional_element("IncludeAPIs", metrics.include_apis.map(|include| include.to_string()));
    write_retention_policy(xml, "RetentionPolicy", &metrics.retention_policy);
    xml.close(name);
}

fn version_text(version: &str) -> &str {
    if version.is_empty() { "1.0" } else { version }
}

fn write_retention_policy(xml: &mut XmlWriter, name: &str, policy: &RetentionPolicy) {
    xml.open(name);
    xml.element("Enabled", policy.enabled.to_string());
    xml.optional_element("Days", policy.days.map(|days| days.to_string()));
    xml.close(name);
}

/// `PUT /?restype=service&comp=properties`: replaces the given elements, and keeps the others.
pub(super) fn set_service_properties(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (host, _) = authorize_account(call, &BlobPermission::SET_SERVICE_PROPERTIES)?;
    let given: BlobServiceProperties = parse_xml(&call.request.body)?;
    if given.cors.as_ref().is_some_and(|cors| !cors.cors_rule.is_empty()) {
        return Err(BlobErrorCode::feature_not_supported("CORS rules"));
    }
    if given.delete_retention_policy.as_ref().is_some_and(|policy| policy.enabled) {
        return Err(BlobErrorCode::feature_not_supported("soft delete of blobs"));
    }
    let now = call.now;
    let storage = &mut call.azure_mut().storage;
    let has_website = given.static_website.as_ref().is_some_and(|website| website.enabled);
    let account = storage.account_mut(&host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    account.properties.update(given);
    let website = ContainerKey { host, name: WEB_CONTAINER.to_owned() };
    if has_website && storage.container(&website).is_none() {
        let etag = storage.next_etag(now);
        storage.insert_container(website, BlobContainer::new(etag, now));
    }
    Ok(ServiceReply::empty(StatusCode::ACCEPTED))
}
