//! The stored properties of the Blob service of an account.

use serde::{Deserialize, Serialize};

/// The properties of the Blob service, in the form of the request body.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BlobServiceProperties {
    pub logging: Option<LoggingProperties>,
    pub hour_metrics: Option<MetricsProperties>,
    pub minute_metrics: Option<MetricsProperties>,
    pub cors: Option<CorsRules>,
    pub default_service_version: Option<String>,
    pub delete_retention_policy: Option<RetentionPolicy>,
    pub static_website: Option<StaticWebsiteProperties>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct LoggingProperties {
    pub version: String,
    pub delete: bool,
    pub read: bool,
    pub write: bool,
    pub retention_policy: RetentionPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricsProperties {
    #[serde(rename = "Version")]
    pub version: String,
    #[serde(rename = "Enabled")]
    pub enabled: bool,
    #[serde(rename = "IncludeAPIs")]
    pub include_apis: Option<bool>,
    #[serde(rename = "RetentionPolicy")]
    pub retention_policy: RetentionPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RetentionPolicy {
    pub enabled: bool,
    pub days: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CorsRules {
    pub cors_rule: Vec<CorsRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CorsRule {
    allowed_origins: String,
}

/// The static website of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct StaticWebsiteProperties {
    pub enabled: bool,
    /// The name of the document that a directory stands for.
    pub index_document: Option<String>,
    /// The blob that is returned with 404.
    #[serde(rename = "ErrorDocument404Path")]
    pub error_document: Option<String>,
    /// The blob that is returned for every directory.
    pub default_index_document_path: Option<String>,
}

impl BlobServiceProperties {
    pub fn update(&mut self, given: Self) {
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
