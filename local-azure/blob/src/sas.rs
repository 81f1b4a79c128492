//! Shared access signatures: URLs that are signed with an account key or with a user delegation key.
//!
//! Reference: "Create an account SAS", "Create a service SAS", "Create a user delegation SAS".

use std::net::IpAddr;

use jiff::Timestamp;
use lanyard_emulator_state::request::{RequestScheme, ServiceRequest};
use lanyard_emulator_state::storage::account::{StorageAccount, sign_with_base64_key};
use lanyard_emulator_state::storage::container::StoredAccessPolicy;
use uuid::Uuid;

use super::http_date::parse_iso_date;
use super::shared_key::is_equal_signature;
use super::target::BlobTarget;
use super::user_delegation_key::UserDelegationKeyParameters;

/// The versions of the Blob service whose signatures the emulator verifies, oldest first. Source: "Previous Azure
/// Storage versions".
const VERSIONS: [&str; 42] = [
    "2015-04-05",
    "2015-07-08",
    "2015-12-11",
    "2016-05-31",
    "2017-04-17",
    "2017-07-29",
    "2017-11-09",
    "2018-03-28",
    "2018-11-09",
    "2019-02-02",
    "2019-07-07",
    "2019-10-10",
    "2019-12-12",
    "2020-02-10",
    "2020-04-08",
    "2020-06-12",
    "2020-08-04",
    "2020-10-02",
    "2020-12-06",
    "2021-02-12",
    "2021-04-10",
    "2021-06-08",
    "2021-08-06",
    "2021-10-04",
    "2021-12-02",
    "2022-11-02",
    "2023-01-03",
    "2023-05-03",
    "2023-08-03",
    "2023-11-03",
    "2024-02-04",
    "2024-05-04",
    "2024-08-04",
    "2024-11-04",
    "2025-01-05",
    "2025-05-05",
    "2025-07-05",
    "2025-11-05",
    "2026-02-06",
    "2026-04-06",
    "2026-06-06",
    "2026-10-06",
];

/// The kind of a signature, which determines its string to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SasKind {
    Account,
    Service,
    UserDelegation,
}

/// The reason why the Blob service does not accept a shared access signature (SAS).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SasError {
    #[error("{0}")]
    AuthenticationFailed(String),
    #[error("the signature does not allow this client address")]
    SourceIp,
    #[error("the signature does not allow this protocol")]
    Protocol,
    #[error("account keys are not permitted")]
    KeyNotPermitted,
    #[error("the emulator does not implement `{0}`")]
    NotSupported(&'static str),
}

/// The rights of a verified signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SasGrant {
    /// The letters of the permissions.
    pub(super) permissions: String,
    /// The letters of `srt`, only in an account signature.
    pub(super) resource_types: Option<String>,
    /// Whether the signature is for the Blob service; only an account signature can be for others.
    pub(super) is_for_blobs: bool,
    /// Whether a service signature is for one blob only.
    pub(super) is_for_one_blob: bool,
    /// The object id of the principal that requested the user delegation key. This principal also
    /// needs the permission.
    pub(super) delegator: Option<Uuid>,
}

/// The parameters of a signature in a query.
#[derive(Debug, Clone, Copy)]
struct SasParameters<'a>(&'a [(String, String)]);

impl<'a> SasParameters<'a> {
    /// The value of a parameter; empty if it is absent.
    fn get(self, name: &str) -> &'a str {
        let found = self.0.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    fn has(self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key.eq_ignore_ascii_case(name))
    }

    fn kind(self) -> SasKind {
        if self.has("ss") || self.has("srt") {
            SasKind::Account
        } else if self.has("skoid") {
            SasKind::UserDelegation
        } else {
            SasKind::Service
        }
    }
}

/// Whether a request has a shared access signature.
pub(super) fn has_signature(request: &ServiceRequest) -> bool {
    request.query("sig").is_some()
}

/// Verifies the signature in the query of a request. `policy` finds a stored access policy of the container.
pub(super) fn verify_sas(
    request: &ServiceRequest,
    account: &StorageAccount,
    target: &BlobTarget,
    policy: impl FnOnce(&str) -> Option<StoredAccessPolicy>,
    now: Timestamp,
) -> Result<SasGrant, SasError> {
    let sas = SasParameters(&request.query);
    let kind = sas.kind();
    require_known_version(sas, "sv")?;
    if kind == SasKind::UserDelegation {
        require_known_version(sas, "skv")?;
    }
    if kind != SasKind::UserDelegation && !account.settings.allow_shared_key_access {
        return Err(SasError::KeyNotPermitted);
    }
    let is_for_one_blob = match (kind, sas.get("sr")) {
        (SasKind::Account, _) | (_, "c") => false,
        (_, "b") => true,
        (_, "bs" | "bv") => return Err(SasError::NotSupported("sr=bs and sr=bv")),
        (_, "d") => return Err(SasError::NotSupported("sr=d")),
        (_, other) => {
            return Err(SasError::AuthenticationFailed(format!("sr={other} is not valid.")));
        }
    };
    if sas.has("sduoid") {
        return Err(SasError::NotSupported("sduoid"));
    }
    let text = match kind {
        SasKind::Account => account_string_to_sign(sas, account),
        SasKind::Service | SasKind::UserDelegation => {
            let container = target.container.as_deref().unwrap_or_default();
            let path = match &target.blob {
                Some(blob) if is_for_one_blob => format!("{container}/{blob}"),
                _ => container.to_owned(),
            };
            let signed = SignedRequestParts::of(sas, request);
            resource_string_to_sign(sas, kind, account, &path, &signed)
        }
    };
    check_signature(request, kind, account, &text)?;
    let times = effective_times_and_permissions(sas, kind, policy)?;
    check_time(times.start.as_deref(), times.expiry.as_deref(), now)?;
    let delegator = match kind {
        SasKind::UserDelegation => Some(check_delegation_key(sas, account, now)?),
        _ => None,
    };
    check_protocol_and_ip(sas, request)?;
    Ok(SasGrant {
        permissions: times.permission.unwrap_or_default(),
        resource_types: (kind == SasKind::Account).then(|| sas.get("srt").to_owned()),
        is_for_blobs: kind != SasKind::Account || sas.get("ss").contains('b'),
        is_for_one_blob,
        delegator,
    })
}

fn require_known_version(sas: SasParameters<'_>, parameter: &str) -> Result<(), SasError> {
    let version = sas.get(parameter);
    if VERSIONS.contains(&version) {
        return Ok(());
    }
    let message = format!("{parameter}={version} is not a version from 2015-04-05 to 2026-10-06.");
    Err(SasError::AuthenticationFailed(message))
}

fn account_string_to_sign(sas: SasParameters<'_>, account: &StorageAccount) -> String {
    let mut text = format!("{}\n", account.name);
    for name in ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"] {
        text.push_str(sas.get(name));
        text.push('\n');
    }
    if sas.get("sv") >= "2020-12-06" {
        text.push_str(sas.get("ses"));
        text.push('\n');
    }
    text
}

/// The string to sign of a service signature and of a user delegation signature, by version.
fn resource_string_to_sign(
    sas: SasParameters<'_>,
    kind: SasKind,
    account: &StorageAccount,
    path: &str,
    signed: &SignedRequestParts,
) -> String {
    let version = sas.get("sv");
    let mut lines = vec![
        sas.get("sp").to_owned(),
        sas.get("st").to_owned(),
        sas.get("se").to_owned(),
        format!("/blob/{}/{path}", account.name),
    ];
    let mut add = |names: &[&str]| lines.extend(names.iter().map(|name| sas.get(name).to_owned()));
    if kind == SasKind::UserDelegation {
        add(&["skoid", "sktid", "skt", "ske", "sks", "skv"]);
        if version >= "2020-02-10" {
            add(&["saoid", "suoid", "scid"]);
        }
        if version >= "2025-07-05" {
            add(&["skdutid", "sduoid"]);
        }
    } else {
        add(&["si"]);
    }
    add(&["sip", "spr", "sv"]);
    if version >= "2018-11-09" {
        // `sr`, and the time of a snapshot.
        add(&["sr"]);
        lines.push(String::new());
    }
    if version >= "2020-12-06" {
        lines.push(sas.get("ses").to_owned());
    }
    if kind == SasKind::UserDelegation && version >= "2026-04-06" {
        lines.push(signed.headers.clone());
        lines.push(signed.query.clone());
    }
    for name in ["rscc", "rscd", "rsce", "rscl", "rsct"] {
        lines.push(sas.get(name).to_owned());
    }
    lines.join("\n")
}

/// The parts of a request that a user delegation signature can cover.
#[derive(Debug, Default)]
struct SignedRequestParts {
    /// The headers that `srh` lists, each followed by a line break.
    headers: String,
    /// The query parameters that `srq` lists, each preceded by a line break.
    query: String,
}

impl SignedRequestParts {
    fn of(sas: SasParameters<'_>, request: &ServiceRequest) -> Self {
        let names = |parameter| sas.get(parameter).split(',').filter(|name| !name.is_empty());
        let mut parts = Self::default();
        for name in names("srh") {
            let value = request.header(&name.to_ascii_lowercase()).unwrap_or_default();
            parts.headers.extend([name, ":", value, "\n"]);
        }
        for name in names("srq") {
            parts.query.extend(["\n", name, ":", sas.get(name)]);
        }
        parts
    }
}

fn check_signature(
    request: &ServiceRequest,
    kind: SasKind,
    account: &StorageAccount,
    text: &str,
) -> Result<(), SasError> {
    let found = request.query("sig").unwrap_or_default();
    let is_valid = if kind == SasKind::UserDelegation {
        let key = UserDelegationKeyParameters::from_query(request).derive_key(account);
        is_equal_signature(&sign_with_base64_key(key.expose(), text), found)
    } else {
        account.keys.iter().any(|key| is_equal_signature(&key.sign(text), found))
    };
    if is_valid {
        Ok(())
    } else {
        let message = format!("Signature did not match. String to sign used was {text}");
        Err(SasError::AuthenticationFailed(message))
    }
}

/// The fields of a signature, completed by its stored access policy.
fn effective_times_and_permissions(
    sas: SasParameters<'_>,
    kind: SasKind,
    policy: impl FnOnce(&str) -> Option<StoredAccessPolicy>,
) -> Result<StoredAccessPolicy, SasError> {
    let given = |name| Some(sas.get(name)).filter(|text| !text.is_empty()).map(str::to_owned);
    let id = given("si").filter(|_| kind == SasKind::Service);
    let stored = match id {
        None => StoredAccessPolicy::default(),
        Some(id) => policy(&id).ok_or_else(|| {
            SasError::AuthenticationFailed(format!(
                "SAS identifier cannot be found for specified signed identifier `{id}`."
            ))
        })?,
    };
    let combine = |name: &'static str, stored: Option<String>| {
        let stored = stored.filter(|text| !text.is_empty());
        match (given(name), stored) {
            (Some(_), Some(_)) => Err(SasError::AuthenticationFailed(format!(
                "{name} is specified in the signature and in its stored access policy."
            ))),
            (one, other) => Ok(one.or(other)),
        }
    };
    Ok(StoredAccessPolicy {
        start: combine("st", stored.start)?,
        expiry: combine("se", stored.expiry)?,
        permission: combine("sp", stored.permission)?,
    })
}

fn check_time(start: Option<&str>, expiry: Option<&str>, now: Timestamp) -> Result<(), SasError> {
    let refuse = |reason: &str| {
        Err(SasError::AuthenticationFailed(format!(
            "Signature not valid in the specified time frame: Start [{}] - Expiry [{}] - Current [{now}]. {reason}",
            start.unwrap_or_default(),
            expiry.unwrap_or_default(),
        )))
    };
    if let Some(start) = start {
        match parse_iso_date(start) {
            None => return refuse("The start is not a date."),
            Some(start) if now < start => return refuse("It is not valid yet."),
            Some(_) => {}
        }
    }
    match expiry.map(parse_iso_date) {
        None => refuse("The expiry is missing."),
        Some(None) => refuse("The expiry is not a date."),
        Some(Some(expiry)) if now >= expiry => refuse("It has expired."),
        Some(Some(_)) => Ok(()),
    }
}

/// Checks the lifetime of the user delegation key, and returns the principal that requested it.
fn check_delegation_key(
    sas: SasParameters<'_>,
    account: &StorageAccount,
    now: Timestamp,
) -> Result<Uuid, SasError> {
    check_time(Some(sas.get("skt")), Some(sas.get("ske")), now)?;
    let is_within_key = match (parse_iso_date(sas.get("se")), parse_iso_date(sas.get("ske"))) {
        (Some(expiry), Some(key_expiry)) => expiry <= key_expiry,
        _ => false,
    };
    if !is_within_key {
        let message = "The signature expires after its user delegation key.".to_owned();
        return Err(SasError::AuthenticationFailed(message));
    }
    if !sas.get("sktid").eq_ignore_ascii_case(account.tenant.as_str()) {
        let message = format!("The tenant `{}` is not that of the account.", sas.get("sktid"));
        return Err(SasError::AuthenticationFailed(message));
    }
    sas.get("skoid").parse().map_err(|error: uuid::Error| {
        SasError::AuthenticationFailed(format!("skoid is not an object id: {error}."))
    })
}

fn check_protocol_and_ip(sas: SasParameters<'_>, request: &ServiceRequest) -> Result<(), SasError> {
    let scheme = match request.scheme {
        RequestScheme::Http => "http",
        RequestScheme::Https => "https",
    };
    let protocols = sas.get("spr");
    if !protocols.is_empty() && !protocols.split(',').any(|allowed| allowed == scheme) {
        return Err(SasError::Protocol);
    }
    let range = sas.get("sip");
    if range.is_empty() || is_in_range(range, request.client_ip) {
        Ok(())
    } else {
        Err(SasError::SourceIp)
    }
}

/// Whether an address is in a range such as `10.0.0.1-10.0.0.9` or equal to a single address.
fn is_in_range(range: &str, client: Option<IpAddr>) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<IpAddr>(), last.parse::<IpAddr>(), client) {
        (Ok(first), Ok(last), Some(client)) => (first..=last).contains(&client),
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod sas_request;
#[cfg(test)]
mod tests;
