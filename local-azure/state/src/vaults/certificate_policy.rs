//! The policy of a certificate: how the vault creates its next version.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bundle_form::BundleForm;
use crate::keys::{AsymmetricKeyType, EllipticCurve};

/// The issuer of self-signed certificates.
pub(crate) const SELF_ISSUER: &str = "Self";

/// The issuer of certificates that clients merge or import.
pub const UNKNOWN_ISSUER: &str = "Unknown";

/// A complete policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatePolicy {
    pub key: CertificateKeyProperties,
    pub form: BundleForm,
    pub x509: X509Properties,
    pub lifetime_actions: Vec<CertificateLifetimeAction>,
    pub issuer: IssuerParameters,
    pub enabled: bool,
    pub created: Timestamp,
    pub updated: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateKeyProperties {
    /// Whether the secret contains the private key.
    pub exportable: bool,
    pub key_type: AsymmetricKeyType,
    /// Whether the next version has the same key.
    pub reuse_key: bool,
}

/// The fields of the certificate, in their wire format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct X509Properties {
    #[serde(default)]
    pub subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sans: Option<AlternativeNames>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ekus: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_usage: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity_months: Option<u32>,
}

/// Subject alternative names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlternativeNames {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emails: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upns: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uris: Option<Vec<String>>,
    #[serde(rename = "ipAddresses", skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<Vec<String>>,
}

impl AlternativeNames {
    pub fn is_empty(&self) -> bool {
        let lists = [&self.emails, &self.dns_names, &self.upns, &self.uris, &self.ip_addresses];
        lists.into_iter().flatten().all(Vec::is_empty)
    }
}

/// What the vault does before a certificate expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateLifetimeAction {
    pub trigger: LifetimeTrigger,
    pub action: LifetimeActionType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LifetimeTrigger {
    /// The elapsed share of the lifetime, in percent.
    LifetimePercentage(u32),
    DaysBeforeExpiry(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifetimeActionType {
    /// Accepted, but the emulator sends no mail.
    EmailContacts,
    AutoRenew,
}

/// The issuer of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerParameters {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cty: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_transparency: Option<bool>,
}

impl IssuerParameters {
    /// Whether the certificates are self-signed.
    pub fn is_self(&self) -> bool {
        self.name.eq_ignore_ascii_case(SELF_ISSUER)
    }

    /// Whether a client merges the certificates.
    pub fn is_unknown(&self) -> bool {
        self.name.eq_ignore_ascii_case(UNKNOWN_ISSUER)
    }
}

impl CertificatePolicy {
    /// When the vault renews a certificate of this validity; `None` if it never does, or if the
    /// renewal would be due before the validity begins.
    pub fn renewal_time(&self, from: Timestamp, until: Timestamp) -> Option<Timestamp> {
        let action =
            self.lifetime_actions.iter().find(|it| it.action == LifetimeActionType::AutoRenew)?;
        if !self.issuer.is_self() {
            return None;
        }
        let seconds = match action.trigger {
            LifetimeTrigger::LifetimePercentage(percentage) => {
                let lifetime = until.as_second() - from.as_second();
                from.as_second() + lifetime / 100 * i64::from(percentage)
            }
            LifetimeTrigger::DaysBeforeExpiry(days) => {
                until.as_second() - i64::from(days) * 24 * 60 * 60
            }
        };
        Timestamp::from_second(seconds).ok().filter(|time| *time > from)
    }

    /// The policy in its wire format, without its id and its times.
    pub fn properties_json(&self) -> Value {
        let mut key = json!({
            "exportable": self.key.exportable,
            "kty": self.key.key_type.jwk_type(),
            "reuse_key": self.key.reuse_key,
        });
        match self.key.key_type {
            AsymmetricKeyType::Rsa(size) => key["key_size"] = json!(size.bits()),
            AsymmetricKeyType::Ec(curve) => {
                key["key_size"] = json!(curve_bits(curve));
                key["crv"] = json!(curve.name());
            }
        }
        let actions: Vec<_> = self
            .lifetime_actions
            .iter()
            .map(|it| json!({ "trigger": it.trigger, "action": { "action_type": it.action } }))
            .collect();
        json!({
            "key_props": key,
            "secret_props": { "contentType": self.form },
            "x509_props": self.x509,
            "lifetime_actions": actions,
            "issuer": self.issuer,
            "attributes": { "enabled": self.enabled },
        })
    }

    /// The policy as in replies.
    pub fn to_json(&self, certificate_id: &str) -> Value {
        let mut wire = self.properties_json();
        wire["id"] = json!(format!("{certificate_id}/policy"));
        wire["x509_props"]["basic_constraints"] = json!({ "ca": false });
        wire["attributes"]["created"] = json!(self.created.as_second());
        wire["attributes"]["updated"] = json!(self.updated.as_second());
        wire
    }
}

const fn curve_bits(curve: EllipticCurve) -> u32 {
    match curve {
        EllipticCurve::P256 | EllipticCurve::P256K => 256,
        EllipticCurve::P384 => 384,
        EllipticCurve::P521 => 521,
    }
}
