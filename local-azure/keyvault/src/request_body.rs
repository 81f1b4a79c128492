//! The parts of request bodies that several operations have.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::keys::{AsymmetricKeyType, EllipticCurve, RsaKeySize};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_store::StoredObjectAttributes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::VaultServiceError;

/// The maximum number of tags of a version.
const MAX_TAGS: usize = 15;
/// The maximum length of a tag's name and of its value, in characters.
const MAX_TAG_LENGTH: usize = 256;

/// The attributes that clients may set.
#[derive(Debug, Deserialize, Default)]
pub(super) struct ObjectAttributesBody {
    enabled: Option<bool>,
    nbf: Option<i64>,
    exp: Option<i64>,
    exportable: Option<bool>,
}

impl ObjectAttributesBody {
    /// Whether the client enables the version. The default of a new version is true.
    pub(super) fn enabled(&self) -> Option<bool> {
        self.enabled
    }

    /// Whether the client asks for a key that can be released from the vault.
    pub(super) fn is_exportable(&self) -> bool {
        self.exportable == Some(true)
    }

    /// Returns `attributes` with the given fields replaced, and `now` as the time of the update.
    pub(super) fn apply(
        &self,
        mut attributes: StoredObjectAttributes,
        now: Timestamp,
    ) -> Result<StoredObjectAttributes, ServiceReply> {
        attributes.enabled = self.enabled.unwrap_or(attributes.enabled);
        attributes.not_before = parse_unix_time("nbf", self.nbf)?.or(attributes.not_before);
        attributes.expires = parse_unix_time("exp", self.exp)?.or(attributes.expires);
        if let (Some(from), Some(until)) = (attributes.not_before, attributes.expires)
            && until <= from
        {
            let message = "`attributes.exp` is not later than `attributes.nbf`";
            return Err(bad_parameter_reply(message.to_owned()));
        }
        attributes.updated = now;
        Ok(attributes)
    }
}

fn parse_unix_time(name: &str, seconds: Option<i64>) -> Result<Option<Timestamp>, ServiceReply> {
    seconds.map(Timestamp::from_second).transpose().map_err(|error| {
        bad_parameter_reply(format!("`attributes.{name}` is no time in seconds: {error}"))
    })
}

/// The tags of a version, which replace all earlier ones.
#[derive(Debug, Deserialize, Default)]
#[serde(transparent)]
pub(super) struct TagsBody(Option<BTreeMap<String, String>>);

impl TagsBody {
    /// The given tags; `None` if the body has none.
    pub(super) fn validate(self) -> Result<Option<BTreeMap<String, String>>, ServiceReply> {
        let Some(tags) = self.0 else { return Ok(None) };
        if tags.len() > MAX_TAGS {
            let count = tags.len();
            return Err(bad_parameter_reply(format!(
                "`tags` has {count} entries; the maximum is {MAX_TAGS}"
            )));
        }
        let is_long = |text: &String| text.chars().count() > MAX_TAG_LENGTH;
        if tags.iter().any(|(name, value)| is_long(name) || is_long(value)) {
            return Err(bad_parameter_reply(format!(
                "a name or value in `tags` has more than {MAX_TAG_LENGTH} characters"
            )));
        }
        Ok(Some(tags))
    }
}

/// Parses the body; an error repeats none of it.
pub(super) fn parse_body<T: DeserializeOwned>(
    call: &OperationContext<'_>,
) -> Result<T, ServiceReply> {
    // The parser's message may quote the body, which may be a secret: report only the position.
    call.request.parse_json_body().map_err(|error| {
        bad_parameter_reply(format!(
            "the body is not the JSON that is expected, at line {}, column {}",
            error.line(),
            error.column()
        ))
    })
}

/// The error for a malformed request.
pub(super) fn bad_parameter_reply(message: String) -> ServiceReply {
    VaultServiceError::BadParameter(message).to_reply()
}

/// Parses `kty` with the size or the curve of a software key.
pub(super) fn parse_key_type(
    kty: Option<&str>,
    key_size: Option<u32>,
    curve: Option<&str>,
) -> Result<AsymmetricKeyType, ServiceReply> {
    match kty.ok_or_else(|| bad_parameter_reply("`kty` is missing".to_owned()))? {
        "RSA" => RsaKeySize::try_from(key_size.unwrap_or(RsaKeySize::Bits2048.bits()))
            .map(AsymmetricKeyType::Rsa)
            .map_err(|error| bad_parameter_reply(error.to_string())),
        "EC" => parse_curve(curve.unwrap_or("P-256")).map(AsymmetricKeyType::Ec),
        kty @ ("RSA-HSM" | "EC-HSM" | "oct" | "oct-HSM" | "AKP" | "AKP-HSM") => {
            Err(hsm_key_reply(&format!("`kty` `{kty}`")))
        }
        kty => Err(bad_parameter_reply(format!("`kty` `{kty}` is not a key type"))),
    }
}

fn parse_curve(name: &str) -> Result<EllipticCurve, ServiceReply> {
    EllipticCurve::from_name(name).ok_or_else(|| {
        let known = EllipticCurve::ALL.map(EllipticCurve::name).join(", ");
        bad_parameter_reply(format!("`crv` `{name}` is none of {known}"))
    })
}

/// The error for a field that asks for a key of a hardware security module.
pub(super) fn hsm_key_reply(field: &str) -> ServiceReply {
    bad_parameter_reply(format!(
        "{field} needs a hardware security module, which a vault of software keys lacks: use a software \
         key of type `RSA` or `EC`"
    ))
}
