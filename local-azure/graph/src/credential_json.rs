//! Client secrets and certificates of applications and service principals, as JSON and from JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{Span, Timestamp, civil};
use lanyard_emulator_state::certificates::{parse_certificate, sha1_thumbprint};
use lanyard_emulator_state::directory::{KeyCredential, PasswordCredential};
use lanyard_emulator_state::jose::x5c_certificate;
use lanyard_emulator_state::keys::RedactedText;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::entity::time_text;
use super::error::GraphError;
use super::path::parse_object_id;

/// `keyCredentials` with the public keys.
pub(super) fn key_credentials_json(keys: &[KeyCredential]) -> Value {
    keys.iter().map(key_credential_json).collect()
}

/// A certificate. `customKeyIdentifier` is its SHA-1 thumbprint, as Graph computes it.
pub(super) fn key_credential_json(key: &KeyCredential) -> Value {
    json!({
        "customKeyIdentifier": hex::encode_upper(sha1_thumbprint(&key.certificate)),
        "displayName": key.display_name,
        "endDateTime": time_text(key.expires),
        "key": STANDARD.encode(&key.certificate),
        "keyId": key.key_id,
        "startDateTime": time_text(key.starts),
        "type": "AsymmetricX509Cert",
        "usage": "Verify",
    })
}

/// `passwordCredentials`, without the secrets.
pub(super) fn password_credentials_json(passwords: &[PasswordCredential]) -> Value {
    passwords.iter().map(password_credential_json).collect()
}

/// A client secret without its text; the hint is its first three characters.
pub(super) fn password_credential_json(password: &PasswordCredential) -> Value {
    let hint: String = password.text.expose().chars().take(3).collect();
    json!({
        "customKeyIdentifier": null,
        "displayName": password.display_name,
        "endDateTime": time_text(password.expires),
        "hint": hint,
        "keyId": password.key_id,
        "secretText": null,
        "startDateTime": time_text(password.starts),
    })
}

/// A new client secret in the form of Entra's: 40 characters with `8Q~` after the first three. It never starts
/// with a hyphen, which command lines would take for an option.
pub(super) fn new_secret_text(ids: [Uuid; 2]) -> RedactedText {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let bytes = ids.map(Uuid::into_bytes).concat();
    let random: String = URL_SAFE_NO_PAD.encode(bytes).replace('-', ".");
    let (hint, rest) = random.split_at(3);
    RedactedText::new(format!("{}8Q~{}", hint.replace(['.', '_'], "a"), &rest[..34]))
}

/// Parses a `passwordCredential` of a request. The service generates the secret.
pub(super) fn parse_password(
    given: &Map<String, Value>,
    key_id: Uuid,
    text: RedactedText,
    now: Timestamp,
) -> Result<PasswordCredential, GraphError> {
    if given.get("secretText").is_some_and(|secret| !secret.is_null()) {
        return Err(GraphError::bad_request(
            "The secretText property is read-only: the service generates the secret.",
        ));
    }
    let starts = time_property(given, "startDateTime")?.unwrap_or(now);
    let two_years = || starts.checked_add(Span::new().hours(2 * 365 * 24)).unwrap_or(starts);
    let expires = time_property(given, "endDateTime")?.unwrap_or_else(two_years);
    if expires <= starts {
        return Err(GraphError::bad_request("Password credential end date is invalid."));
    }
    Ok(PasswordCredential { key_id, display_name: display_name(given), text, starts, expires })
}

/// Returns the `keyCredentials` of a resource after a write of `given`. An entry with the `keyId`
/// of a stored credential keeps it, and cannot change it; an entry with another `keyId` is a new
/// certificate.
pub(super) fn replace_key_credentials(
    stored: &[KeyCredential],
    given: &Value,
    resource: &str,
    mut next_key_id: impl FnMut() -> Uuid,
) -> Result<Vec<KeyCredential>, GraphError> {
    let invalid = || GraphError::invalid_value("keyCredentials", resource);
    let given = given.as_array().ok_or_else(invalid)?;
    let mut result: Vec<KeyCredential> = Vec::new();
    for entry in given {
        let entry = entry.as_object().ok_or_else(invalid)?;
        let key_id = key_id(entry)?.unwrap_or_else(&mut next_key_id);
        if result.iter().any(|known| known.key_id == key_id) {
            return Err(GraphError::bad_request(format!(
                "The property keyCredentials contains more than one credential with keyId '{key_id}'."
            ))
            .with_detail("InvalidValue", "keyCredentials"));
        }
        let existing = stored.iter().find(|known| known.key_id == key_id);
        result.push(match existing {
            Some(existing) if is_unchanged(existing, entry)? => existing.clone(),
            Some(_) => {
                return Err(GraphError::bad_request(format!(
                    "Update to existing credential with KeyId '{key_id}' is not allowed."
                ))
                .with_detail("KeyNotUpdatable", "keyCredentials"));
            }
            None => parse_key(entry, key_id)?,
        });
    }
    Ok(result)
}

/// Returns the `passwordCredentials` after a write of `given`, which can only remove entries.
pub(super) fn retain_passwords(
    stored: &[PasswordCredential],
    given: &Value,
    resource: &str,
) -> Result<Vec<PasswordCredential>, GraphError> {
    let entries = given.as_array();
    let entries =
        entries.ok_or_else(|| GraphError::invalid_value("passwordCredentials", resource))?;
    let find = |entry: &Value| {
        let entry = entry.as_object()?;
        let key_id = key_id(entry).ok()??;
        stored.iter().find(|known| known.key_id == key_id).cloned()
    };
    entries.iter().map(find).collect::<Option<_>>().ok_or_else(|| {
        GraphError::bad_request(
            "Property passwordCredentials cannot add or change a password: use addPassword.",
        )
        .with_detail("KeyNotUpdatable", "passwordCredentials")
    })
}

/// Parses a new `keyCredential`: a certificate that verifies signatures.
pub(super) fn parse_key(
    given: &Map<String, Value>,
    key_id: Uuid,
) -> Result<KeyCredential, GraphError> {
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    match (text("type"), text("usage")) {
        (Some("AsymmetricX509Cert"), Some(usage)) if usage.eq_ignore_ascii_case("verify") => {}
        (Some("AsymmetricX509Cert"), _) => {
            return Err(GraphError::bad_request(
                "The value for the property \"usage\" in one of your credentials is invalid. Acceptable values are Sign, Verify.",
            ));
        }
        (Some("X509CertAndPassword" | "Symmetric" | "X509CertAndSecret"), _) => {
            return Err(GraphError::not_implemented(
                "The emulator implements key credentials of type 'AsymmetricX509Cert' with usage 'Verify'.",
            ));
        }
        _ => {
            return Err(GraphError::bad_request(
                "The value for the property \"type\" in one of your credentials is invalid. Acceptable values are AsymmetricX509Cert, X509CertAndPassword.",
            ));
        }
    }
    let certificate = text("key").and_then(x5c_certificate).ok_or_else(|| {
        GraphError::bad_request("Invalid certificate: Key value is invalid certificate")
            .with_detail("InvalidValue", "keyCredentials")
    })?;
    let facts = CertificateFacts::parse(&certificate)?;
    let starts = time_property(given, "startDateTime")?.unwrap_or(facts.not_before);
    let expires = time_property(given, "endDateTime")?.unwrap_or(facts.not_after);
    if starts < facts.not_before {
        return Err(GraphError::bad_request("Key credential start date is invalid."));
    }
    if expires > facts.not_after || expires <= starts {
        return Err(GraphError::bad_request("Key credential end date is invalid."));
    }
    let display_name = display_name(given).or(Some(facts.subject));
    Ok(KeyCredential { key_id, display_name, certificate, starts, expires })
}

/// The `keyId` of a credential.
pub(super) fn key_id(given: &Map<String, Value>) -> Result<Option<Uuid>, GraphError> {
    match given.get("keyId") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_str().and_then(parse_object_id) {
            Some(id) => Ok(Some(id)),
            None => Err(GraphError::malformed(format!(
                "Cannot convert the literal {value} to the expected type 'Edm.Guid'."
            ))),
        },
    }
}

/// Whether an entry of a request describes a stored credential without changing it.
fn is_unchanged(stored: &KeyCredential, entry: &Map<String, Value>) -> Result<bool, GraphError> {
    let same_key = match entry.get("key").and_then(Value::as_str) {
        None => true,
        Some(key) => x5c_certificate(key).as_deref() == Some(&stored.certificate),
    };
    let same_time = |name, stored: Timestamp| -> Result<bool, GraphError> {
        let given = time_property(entry, name)?;
        Ok(given.is_none_or(|given| given.as_second() == stored.as_second()))
    };
    Ok(same_key
        && same_time("startDateTime", stored.starts)?
        && same_time("endDateTime", stored.expires)?)
}

/// What a key credential takes from its certificate.
struct CertificateFacts {
    /// The distinguished name of the subject, such as `CN=CLI-Login`.
    subject: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

impl CertificateFacts {
    fn parse(der: &[u8]) -> Result<Self, GraphError> {
        let invalid =
            || GraphError::bad_request("Invalid certificate: Key value is invalid certificate");
        let parsed = parse_certificate(der).ok_or_else(invalid)?;
        let validity = parsed.validity();
        let time = |seconds: i64| Timestamp::from_second(seconds).ok().ok_or_else(invalid);
        Ok(Self {
            subject: parsed.subject().to_string(),
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
        })
    }
}

fn display_name(given: &Map<String, Value>) -> Option<String> {
    given.get("displayName").and_then(Value::as_str).map(str::to_owned)
}

/// A time of a request. A time without an offset is UTC, as in Graph.
fn time_property(given: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, GraphError> {
    let text = match given.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_str().unwrap_or_default(),
    };
    let without_offset = || {
        let civil: civil::DateTime = text.parse().ok()?;
        Some(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    text.parse().ok().or_else(without_offset).map(Some).ok_or_else(|| {
        GraphError::malformed(format!(
            "Cannot convert the literal '{text}' to the expected type 'Edm.DateTimeOffset'."
        ))
    })
}
