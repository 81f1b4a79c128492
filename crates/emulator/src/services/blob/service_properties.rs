//! The properties of the Blob service of an account.
//!
//! Reference: "Get Blob Service Properties", "Set Blob Service Properties". Analytics settings are stored and
//! returned; the emulator writes no logs and no metrics into the account.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::access::authorize_account;
use super::container::BlobContainer;
use super::error::BlobErrorCode;
use super::names::WEB_CONTAINER;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::store::ContainerKey;
use super::xml::{XmlWriter, parse_xml};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// The properties of the Blob service, in the form of the request body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct BlobServiceProperties {
    logging: Option<LoggingProperties>,
    hour_metrics: Option<MetricsProperties>,
    minute_metrics: Option<MetricsProperties>,
    cors: Option<CorsRules>,
    default_service_version: Option<String>,
    delete_retention_policy: Option<RetentionPolicy>,
    pub(crate) static_website: Option<StaticWebsiteProperties>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct LoggingProperties {
    version: String,
    delete: bool,
    read: bool,
    write: bool,
    retention_policy: RetentionPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct MetricsProperties {
    #[serde(rename = "Version")]
    version: String,
    #[serde(rename = "Enabled")]
    enabled: bool,
    #[serde(rename = "IncludeAPIs")]
    include_apis: Option<bool>,
    #[serde(rename = "RetentionPolicy")]
    retention_policy: RetentionPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RetentionPolicy {
    enabled: bool,
    days: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CorsRules {
    cors_rule: Vec<CorsRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CorsRule {
    allowed_origins: String,
}

/// The static website of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct StaticWebsiteProperties {
    pub(crate) enabled: bool,
    /// The name of the document that a directory stands for.
    pub(crate) index_document: Option<String>,
    /// The blob that is returned with 404.
    #[serde(rename = "ErrorDocument404Path")]
    pub(crate) error_document: Option<String>,
    /// The blob that is returned for every directory.
    pub(crate) default_index_document_path: Option<String>,
}

/// `GET /?restype=service&comp=properties`
pub(super) fn get_service_properties(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (host, _) = authorize_account(call, &BlobPermission::GET_SERVICE_PROPERTIES)?;
    let account = call.azure().storage.account(&host).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    let properties = &account.properties;
    let mut xml = XmlWriter::document();
    xml.open("StorageServiceProperties");
    properties.logging.clone().unwrap_or_default().write(&mut xml);
    properties.hour_metrics.clone().unwrap_or_default().write(&mut xml, "HourMetrics");
    properties.minute_metrics.clone().unwrap_or_default().write(&mut xml, "MinuteMetrics");
    xml.open("Cors");
    xml.close("Cors");
    xml.optional_element("DefaultServiceVersion", properties.default_service_version.as_ref());
    properties
        .delete_retention_policy
        .clone()
        .unwrap_or_default()
        .write(&mut xml, "DeleteRetentionPolicy");
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

impl LoggingProperties {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open("Logging");
        xml.element("Version", if self.version.is_empty() { "1.0" } else { &self.version });
        xml.element("Delete", self.delete.to_string());
        xml.element("Read", self.read.to_string());
        xml.element("Write", self.write.to_string());
        self.retention_policy.write(xml, "RetentionPolicy");
        xml.close("Logging");
    }
}

impl MetricsProperties {
    fn write(&self, xml: &mut XmlWriter, name: &str) {
        xml.open(name);
        xml.element("Version", if self.version.is_empty() { "1.0" } else { &self.version });
        xml.element("Enabled", self.enabled.to_string());
        xml.optional_element("IncludeAPIs", self.include_apis.map(|include| include.to_string()));
        self.retention_policy.write(xml, "RetentionPolicy");
        xml.close(name);
    }
}

impl RetentionPolicy {
    fn write(&self, xml: &mut XmlWriter, name: &str) {
        xml.open(name);
        xml.element("Enabled", self.enabled.to_string());
        xml.optional_element("Days", self.days.map(|days| days.to_string()));
        xml.close(name);
    }
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

impl BlobServiceProperties {
    fn update(&mut self, given: Self) {
        fn replace<T>(field: &mut Option<T>, given: Option<T>) {
            if given.is_some() {
                *field = given;
            }
        }
        replace(&mut self.logging, given.logging);
        replace(&mut self.hour_metrics, given.hour_metrics);
        replace(&mut self.minute_metrics, given.minute_metrics);
        replace(&mut self.default_service_version, given.default_service_version);
        replace(&mut self.delete_retention_policy, given.delete_retention_policy);
        replace(&mut self.static_website, given.static_website);
    }
}
