//! Policies of certificates in requests: parsed, completed and checked.

use jiff::Timestamp;
use lanyard_emulator_state::keys::{AsymmetricKey, AsymmetricKeyType, RsaKeySize};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::bundle_form::BundleForm;
use lanyard_emulator_state::vaults::certificate_policy::{
    AlternativeNames, CertificateKeyProperties, CertificateLifetimeAction, CertificatePolicy,
    IssuerParameters, LifetimeActionType, LifetimeTrigger, UNKNOWN_ISSUER, X509Properties,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::certificate_issuance::{
    DEFAULT_VALIDITY_MONTHS, MAX_VALIDITY_MONTHS, certificate_params, x509_properties,
};
use super::request_body::bad_parameter_reply;
use super::request_body::parse_key_type;

/// The share of the lifetime after which the default action of a policy runs.
const DEFAULT_LIFETIME_PERCENTAGE: u32 = 80;
/// A month has at least this many days in the rule for `days_before_expiry`.
const DAYS_PER_MONTH: u32 = 27;

/// The policy in a request. Absent fields have the defaults of the service, or keep their value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PolicyBody {
    key_props: Option<KeyPropertiesBody>,
    secret_props: Option<SecretPropertiesBody>,
    x509_props: Option<X509Properties>,
    lifetime_actions: Option<Vec<LifetimeActionBody>>,
    issuer: Option<IssuerBody>,
    attributes: Option<PolicyAttributesBody>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyPropertiesBody {
    exportable: Option<bool>,
    kty: Option<String>,
    key_size: Option<u32>,
    reuse_key: Option<bool>,
    crv: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SecretPropertiesBody {
    #[serde(rename = "contentType")]
    content_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LifetimeActionBody {
    trigger: Option<LifetimeTriggerBody>,
    action: Option<LifetimeActionTypeBody>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LifetimeTriggerBody {
    lifetime_percentage: Option<u32>,
    days_before_expiry: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LifetimeActionTypeBody {
    action_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IssuerBody {
    name: Option<String>,
    cty: Option<String>,
    cert_transparency: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PolicyAttributesBody {
    enabled: Option<bool>,
}

/// Parses the policy of a request and completes it. `previous` is the stored policy, whose values absent
/// fields keep.
pub(super) fn complete_policy(
    given: &Value,
    previous: Option<&CertificatePolicy>,
    now: Timestamp,
) -> Result<CertificatePolicy, ServiceReply> {
    let merged = previous.map_or_else(|| json!({}), CertificatePolicy::properties_json);
    let mut body = PolicyBody::merge(merged, given)?;
    let x509 = complete_x509(body.x509_props.take().unwrap_or_default())?;
    let mut policy = body.complete(x509, now)?;
    policy.created = previous.map_or(now, |previous| previous.created);
    require_creatable_renewals(&policy)?;
    Ok(policy)
}

/// The policy of an imported certificate with the settings of the request: everything but the type of the
/// key and the fields of the certificate, which are those of the file.
pub(super) fn policy_with_import_settings(
    imported: CertificatePolicy,
    mut given: Value,
) -> Result<CertificatePolicy, ServiceReply> {
    if let Some(kty) = given.pointer("/key_props/kty").and_then(Value::as_str) {
        parse_key_type(Some(kty), None, None)?;
    }
    if let Some(fields) = given.as_object_mut() {
        fields.remove("x509_props");
    }
    if let Some(Value::Object(key)) = given.get_mut("key_props") {
        key.retain(|name, _| !["kty", "key_size", "crv"].contains(&name.as_str()));
    }
    let body = PolicyBody::merge(imported.properties_json(), &given)?;
    let policy = body.complete(imported.x509, imported.created)?;
    require_creatable_renewals(&policy)?;
    Ok(policy)
}

/// Rejects a policy whose certificates and certificate requests the emulator cannot create.
pub(super) fn require_creatable(policy: &CertificatePolicy) -> Result<(), ServiceReply> {
    match certificate_params(policy) {
        Ok(_) => Ok(()),
        Err(problem) => Err(bad_parameter_reply(format!("`policy`: {problem}"))),
    }
}

/// Like [`require_creatable`], for certificates that the vault renews: self-signed ones.
fn require_creatable_renewals(policy: &CertificatePolicy) -> Result<(), ServiceReply> {
    if policy.issuer.is_self() { require_creatable(policy) } else { Ok(()) }
}

/// Returns the policy that an imported certificate gets.
pub(super) fn imported_policy(
    certificate: &x509_parser::certificate::X509Certificate<'_>,
    key: &AsymmetricKey,
    form: BundleForm,
    now: Timestamp,
) -> CertificatePolicy {
    let key_type = key.key_type().unwrap_or(AsymmetricKeyType::Rsa(RsaKeySize::Bits4096));
    let action = CertificateLifetimeAction {
        trigger: LifetimeTrigger::LifetimePercentage(DEFAULT_LIFETIME_PERCENTAGE),
        action: LifetimeActionType::EmailContacts,
    };
    CertificatePolicy {
        key: CertificateKeyProperties { exportable: true, key_type, reuse_key: false },
        form,
        x509: x509_properties(certificate),
        lifetime_actions: vec![action],
        issuer: IssuerParameters {
            name: UNKNOWN_ISSUER.to_owned(),
            cty: None,
            cert_transparency: None,
        },
        enabled: true,
        created: now,
        updated: now,
    }
}

/// Copies the fields of `given` that are not null; objects are merged, lists are replaced. A new key type
/// replaces size and curve.
fn merge_present_fields(target: &mut Value, given: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *target, given) else {
        return;
    };
    if changes.get("kty").is_some_and(|kty| !kty.is_null()) {
        fields.remove("key_size");
        fields.remove("crv");
    }
    for (name, change) in changes {
        match change {
            Value::Null => {}
            Value::Object(_) if name != "sans" && fields.get(name).is_none_or(Value::is_object) => {
                let field = fields.entry(name.clone()).or_insert(Value::Object(Map::new()));
                merge_present_fields(field, change);
            }
            other => drop(fields.insert(name.clone(), other.clone())),
        }
    }
}

impl PolicyBody {
    /// Merges the fields of a policy in a request into a stored policy.
    fn merge(mut stored: Value, given: &Value) -> Result<Self, ServiceReply> {
        if !given.is_object() {
            return Err(bad_parameter_reply("`policy` is not an object".to_owned()));
        }
        merge_present_fields(&mut stored, given);
        serde_json::from_value(stored)
            .map_err(|error| bad_parameter_reply(format!("`policy`: {error}")))
    }

    /// Completes the policy with defaults; `x509` has the fields of the certificate.
    fn complete(
        self,
        x509: X509Properties,
        now: Timestamp,
    ) -> Result<CertificatePolicy, ServiceReply> {
        let key = self.key_props.unwrap_or_default();
        let key_type = parse_key_type(
            Some(key.kty.as_deref().unwrap_or("RSA")),
            key.key_size,
            key.crv.as_deref(),
        );
        let form = match self.secret_props.unwrap_or_default().content_type {
            None => BundleForm::Pkcs12,
            Some(text) => BundleForm::from_content_type(&text).ok_or_else(|| {
                bad_parameter_reply(format!(
                    "`policy.secret_props.contentType` `{text}` is neither {} nor {}",
                    BundleForm::Pkcs12.content_type(),
                    BundleForm::Pem.content_type()
                ))
            })?,
        };
        let issuer = self.issuer.unwrap_or_default();
        let name = issuer.name.filter(|name| !name.is_empty());
        let issuer = IssuerParameters {
            name: name
                .ok_or_else(|| bad_parameter_reply("`policy.issuer.name` is missing".to_owned()))?,
            cty: issuer.cty,
            cert_transparency: issuer.cert_transparency,
        };
        let months = x509.validity_months.unwrap_or(DEFAULT_VALIDITY_MONTHS);
        let lifetime_actions = match self.lifetime_actions {
            None => vec![default_action(&issuer)],
            Some(actions) => {
                actions.into_iter().map(|action| action.parse(months)).collect::<Result<_, _>>()?
            }
        };
        Ok(CertificatePolicy {
            key: CertificateKeyProperties {
                exportable: key.exportable.unwrap_or(true),
                key_type: key_type?,
                reuse_key: key.reuse_key.unwrap_or(false),
            },
            form,
            x509,
            lifetime_actions,
            issuer,
            enabled: self.attributes.and_then(|attributes| attributes.enabled).unwrap_or(true),
            created: now,
            updated: now,
        })
    }
}

fn complete_x509(mut x509: X509Properties) -> Result<X509Properties, ServiceReply> {
    let months = *x509.validity_months.get_or_insert(DEFAULT_VALIDITY_MONTHS);
    if !(1..=MAX_VALIDITY_MONTHS).contains(&months) {
        return Err(bad_parameter_reply(format!(
            "`policy.x509_props.validity_months` `{months}` is not 1 to {MAX_VALIDITY_MONTHS}"
        )));
    }
    if x509.subject.is_empty() && x509.sans.as_ref().is_none_or(AlternativeNames::is_empty) {
        let message =
            "`policy.x509_props` has neither a `subject` nor an alternative name in `sans`";
        return Err(bad_parameter_reply(message.to_owned()));
    }
    let list = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    x509.ekus.get_or_insert_with(|| list(["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]));
    x509.key_usage.get_or_insert_with(|| list(["digitalSignature", "keyEncipherment"]));
    Ok(x509)
}

/// By default, the vault renews self-signed certificates, and sends an e-mail for others.
fn default_action(issuer: &IssuerParameters) -> CertificateLifetimeAction {
    CertificateLifetimeAction {
        trigger: LifetimeTrigger::LifetimePercentage(DEFAULT_LIFETIME_PERCENTAGE),
        action: if issuer.is_self() {
            LifetimeActionType::AutoRenew
        } else {
            LifetimeActionType::EmailContacts
        },
    }
}

impl LifetimeActionBody {
    fn parse(self, validity_months: u32) -> Result<CertificateLifetimeAction, ServiceReply> {
        let reject =
            |text: String| bad_parameter_reply(format!("`policy.lifetime_actions`: {text}"));
        let most = validity_months * DAYS_PER_MONTH;
        let trigger = self.trigger.unwrap_or_default();
        let trigger = match (trigger.lifetime_percentage, trigger.days_before_expiry) {
            (Some(percentage), None) if (1..=99).contains(&percentage) => {
                LifetimeTrigger::LifetimePercentage(percentage)
            }
            (Some(percentage), None) => {
                return Err(reject(format!("`lifetime_percentage` `{percentage}` is not 1 to 99")));
            }
            (None, Some(days)) if (1..=most).contains(&days) => {
                LifetimeTrigger::DaysBeforeExpiry(days)
            }
            (None, Some(days)) => {
                return Err(reject(format!("`days_before_expiry` `{days}` is not 1 to {most}")));
            }
            _ => {
                let rule = "a trigger is `lifetime_percentage` or `days_before_expiry`";
                return Err(reject(rule.to_owned()));
            }
        };
        let name = self.action.and_then(|action| action.action_type).unwrap_or_default();
        let action = match name.as_str() {
            name if name.eq_ignore_ascii_case("AutoRenew") => LifetimeActionType::AutoRenew,
            name if name.eq_ignore_ascii_case("EmailContacts") => LifetimeActionType::EmailContacts,
            name => {
                return Err(reject(format!("`{name}` is neither `AutoRenew` nor `EmailContacts`")));
            }
        };
        Ok(CertificateLifetimeAction { trigger, action })
    }
}
