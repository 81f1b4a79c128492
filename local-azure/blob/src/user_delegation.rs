//! The operation that returns a user delegation key. Reference: "Get User Delegation Key".

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde::Deserialize;

use super::access::{BlobCaller, authorize_account};
use super::error::BlobErrorCode;
use super::http_date::parse_iso_date;
use super::permission::BlobPermission;
use super::reply::xml_reply;
use super::user_delegation_key::UserDelegationKeyParameters;
use super::xml_body::parse_xml;
use super::xml_writer::XmlWriter;

/// The longest lifetime of a key.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The body of `Get User Delegation Key`.
#[derive(Debug, Deserialize)]
struct KeyInfo {
    #[serde(rename = "Start")]
    start: Option<String>,
    #[serde(rename = "Expiry")]
    expiry: String,
    #[serde(rename = "DelegatedUserTid")]
    delegated_user_tenant: Option<String>,
}

/// `POST /?restype=service&comp=userdelegationkey`: only with a bearer token.
pub(super) fn get_user_delegation_key(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let (account, caller) = authorize_account(call, &BlobPermission::GET_USER_DELEGATION_KEY)?;
    let BlobCaller::Principal(caller) = caller else {
        let detail = "Only authentication scheme Bearer is supported.";
        return Err(
            BlobErrorCode::AUTHENTICATION_FAILED.with_detail("AuthenticationErrorDetail", detail)
        );
    };
    let info: KeyInfo = parse_xml(&call.request.body)?;
    if info.delegated_user_tenant.is_some_and(|tenant| !tenant.is_empty()) {
        return Err(BlobErrorCode::feature_not_supported("keys for users of another tenant"));
    }
    let now = call.now;
    let start = info.start.filter(|text| !text.is_empty()).unwrap_or_else(|| seconds_text(now));
    check_lifetime(&start, &info.expiry, now)?;
    let key = UserDelegationKeyParameters {
        object_id: caller.object_id.to_string(),
        tenant: caller.tenant.to_string(),
        start,
        expiry: info.expiry,
        service: "b".to_owned(),
        version: call.request.header("x-ms-version").unwrap_or_default().to_owned(),
    };
    let account = call.azure().storage.account(&account).ok_or(BlobErrorCode::ACCOUNT_NOT_FOUND)?;
    let value = key.derive_key(account);
    let mut xml = XmlWriter::document();
    xml.open("UserDelegationKey");
    xml.element("SignedOid", &key.object_id);
    xml.element("SignedTid", &key.tenant);
    xml.element("SignedStart", &key.start);
    xml.element("SignedExpiry", &key.expiry);
    xml.element("SignedService", &key.service);
    xml.element("SignedVersion", &key.version);
    xml.element("Value", value.expose());
    xml.close("UserDelegationKey");
    Ok(xml_reply(StatusCode::OK, xml))
}

fn seconds_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn check_lifetime(start: &str, expiry: &str, now: Timestamp) -> Result<(), ServiceReply> {
    let invalid = |reason: &str| BlobErrorCode::OUT_OF_RANGE_INPUT.with_detail("Reason", reason);
    let start = parse_iso_date(start).ok_or_else(|| invalid("`Start` is not a date"))?;
    let expiry = parse_iso_date(expiry).ok_or_else(|| invalid("`Expiry` is not a date"))?;
    if expiry <= start || expiry <= now {
        return Err(invalid("`Expiry` is not after `Start` and the current time"));
    }
    let latest = start.max(now).checked_add(MAX_LIFETIME).unwrap_or(Timestamp::MAX);
    if expiry > latest {
        return Err(invalid("the lifetime is more than seven days"));
    }
    Ok(())
}
