//! Shared Key and Shared Key Lite: requests that are signed with an account key.
//!
//! Reference: "Authorize with Shared Key", for version 2015-02-21 and later of the Blob service.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_state::request::ServiceRequest;
use lanyard_emulator_state::storage::account::StorageAccount;

use super::http_date::parse_http_date;

/// How far the date of a request may differ from the clock of the service.
const MAX_DATE_DIFFERENCE: SignedDuration = SignedDuration::from_mins(15);

/// The two forms of the string to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharedKeyScheme {
    SharedKey,
    SharedKeyLite,
}

/// The reason why the Blob service does not accept the `SharedKey` signature of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SharedKeyError {
    #[error("The Authorization header is not in the form `<scheme> <account>:<signature>`.")]
    Malformed,
    #[error("The signature is of the account `{found}`.")]
    OtherAccount { found: String },
    #[error("The request has neither `x-ms-date` nor `Date` in the format of RFC 1123.")]
    DateMissing,
    #[error("Request date header too old or too new: '{date}'")]
    DateSkewed { date: String },
    #[error(
        "The MAC signature found in the HTTP request '{found}' is not the same as any computed signature. Server used following string to sign: '{string_to_sign}'."
    )]
    SignatureMismatch { found: String, string_to_sign: String },
}

/// The scheme and the parameters of an `Authorization` header, if it is a signature.
pub(super) fn parse_authorization(header: &str) -> Option<(SharedKeyScheme, &str)> {
    let (scheme, parameters) = header.split_once(' ')?;
    match scheme {
        "SharedKey" => Some((SharedKeyScheme::SharedKey, parameters.trim())),
        "SharedKeyLite" => Some((SharedKeyScheme::SharedKeyLite, parameters.trim())),
        _ => None,
    }
}

/// Verifies the signature of a request with the keys of the account. The date of the request is near one of
/// the `clocks`: the emulated time, or that of the machine.
pub(super) fn verify_signature(
    request: &ServiceRequest,
    account: &StorageAccount,
    scheme: SharedKeyScheme,
    parameters: &str,
    clocks: &[Timestamp],
) -> Result<(), SharedKeyError> {
    let (name, found) = parameters.split_once(':').ok_or(SharedKeyError::Malformed)?;
    if name != account.name.as_str() {
        return Err(SharedKeyError::OtherAccount { found: name.to_owned() });
    }
    let date = request
        .header("x-ms-date")
        .or_else(|| request.header("date"))
        .ok_or(SharedKeyError::DateMissing)?;
    let sent = parse_http_date(date).ok_or(SharedKeyError::DateMissing)?;
    let is_near = |now: &Timestamp| sent.duration_since(*now).abs() <= MAX_DATE_DIFFERENCE;
    if !clocks.iter().any(is_near) {
        return Err(SharedKeyError::DateSkewed { date: date.to_owned() });
    }
    let text = match scheme {
        SharedKeyScheme::SharedKey => string_to_sign(request, name),
        SharedKeyScheme::SharedKeyLite => string_to_sign_lite(request, name),
    };
    if account.keys.iter().any(|key| is_equal_signature(&key.sign(&text), found)) {
        Ok(())
    } else {
        let found = found.to_owned();
        Err(SharedKeyError::SignatureMismatch { found, string_to_sign: text })
    }
}

/// Compares signatures in constant time.
pub(super) fn is_equal_signature(computed: &str, found: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(computed.as_bytes(), found.as_bytes()).is_ok()
}

fn string_to_sign(request: &ServiceRequest, account: &str) -> String {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let length = header("content-length");
    let date = if request.header("x-ms-date").is_some() { "" } else { header("date") };
    let lines = [
        request.method.as_str(),
        header("content-encoding"),
        header("content-language"),
        if length == "0" { "" } else { length },
        header("content-md5"),
        header("content-type"),
        date,
        header("if-modified-since"),
        header("if-match"),
        header("if-none-match"),
        header("if-unmodified-since"),
        header("range"),
    ];
    let headers = canonical_headers(request);
    let resource = canonical_resource(request, account);
    format!("{}\n{headers}{resource}", lines.join("\n"))
}

fn string_to_sign_lite(request: &ServiceRequest, account: &str) -> String {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let date = if request.header("x-ms-date").is_some() { "" } else { header("date") };
    let lines = [request.method.as_str(), header("content-md5"), header("content-type"), date];
    let headers = canonical_headers(request);
    let component = request.query("comp").map(|value| format!("?comp={value}"));
    let path = &request.path;
    format!("{}\n{headers}/{account}{path}{}", lines.join("\n"), component.unwrap_or_default())
}

/// The lines `name:value` of the headers `x-ms-*`, in the order of the service.
fn canonical_headers(request: &ServiceRequest) -> String {
    let mut headers: Vec<_> = request
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("x-ms-"))
        .map(|name| {
            let values = request.headers.get_all(name).iter();
            let values: Vec<_> =
                values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            (name, values.join(","))
        })
        .collect();
    headers.sort_by(|(one, _), (other, _)| compare_header_names(one, other));
    let lines = headers.iter().flat_map(|(name, value)| [name, ":", value.trim(), "\n"]);
    lines.collect()
}

/// The characters of header names in the order of the service's culture-sensitive comparison. It ignores
/// hyphens, unless the names are otherwise equal.
const HEADER_CHARACTERS: &str = "!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz";

fn compare_header_names(one: &str, other: &str) -> Ordering {
    let is_ignored = |c: &char| matches!(c, '-' | '\'');
    let weights = |name: &str| {
        name.chars()
            .filter(|c| !is_ignored(c))
            .map(|c| HEADER_CHARACTERS.find(c).unwrap_or(usize::MAX))
            .collect::<Vec<_>>()
    };
    // At the first difference, the name with a hyphen is the later one.
    let hyphens = |name: &str| name.chars().map(|c| is_ignored(&c)).collect::<Vec<_>>();
    weights(one).cmp(&weights(other)).then_with(|| hyphens(one).cmp(&hyphens(other)))
}

/// The account and the encoded path, with a line for each query parameter.
fn canonical_resource(request: &ServiceRequest, account: &str) -> String {
    let mut parameters: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in &request.query {
        parameters.entry(name.to_ascii_lowercase()).or_default().push(value);
    }
    let mut resource = format!("/{account}{}", request.path);
    for (name, mut values) in parameters {
        values.sort_unstable();
        resource.push('\n');
        resource.push_str(&name);
        resource.push(':');
        resource.push_str(&values.join(","));
    }
    resource
}

#[cfg(test)]
mod tests;
