//! The device code flow (RFC 8628): a user signs in on another device.

use http::StatusCode;
use jiff::SignedDuration;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::directory::User;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::sign_ins::sign_in_state::{
    DeviceAuthorization, DeviceAuthorizationStatus,
};
use serde_json::json;
use uuid::Uuid;

use super::client::UserClient;
use super::discovery::EndpointVersion;
use super::error::{
    AUTHORIZATION_PENDING, CODE_REDEEMED, DEVICE_CODE_DECLINED, DEVICE_CODE_EXPIRED,
    DEVICE_CODE_UNKNOWN, GRANT_INVALID, TokenServiceError, USER_DELETED,
};
use super::sign_in_page::{device_page, message_page};
use super::tenant_in_path::TenantInPath;
use super::token_directory;
use super::token_form::ClientTokenForm;
use super::user_sign_in::{require_enabled, select_user, sign_in_with_password, token_tenant};
use super::user_tokens::UserSession;

/// The lifetime of a code, in seconds.
const EXPIRES_IN: i64 = 900;
/// The seconds that clients wait between two requests.
const INTERVAL: u32 = 5;
/// The characters of user codes: without those that look like others.
const CODE_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_LENGTH: usize = 9;

/// `POST /{tenant}/oauth2/v2.0/devicecode`: starts a flow. If the settings name a user, that user
/// signs in immediately.
pub(super) fn start_device_flow(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, TokenServiceError> {
    let form = ClientTokenForm::from_request(call.request);
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let client_id = form.required("client_id")?;
    let client = UserClient::find(directory, path, client_id)?;
    let scope = form.require_scope(EndpointVersion::V2)?;
    let automatic = call.azure().sign_ins.settings.automatic_user;
    let automatic = automatic
        .and_then(|id| directory.user(id))
        .filter(|user| user.enabled && token_tenant(directory, path, &client, user).is_ok());
    let status = match automatic {
        Some(user) => DeviceAuthorizationStatus::Approved { user: user.object_id },
        None => DeviceAuthorizationStatus::Pending,
    };
    let client_id = client.client_id();
    call.record_caller(client_id);
    let user_code = new_user_code(call.ids);
    let device_code = format!("{user_code}.{}{}", call.ids.next_hex32(), call.ids.next_hex32());
    let row = DeviceAuthorization {
        device_code: RedactedText::new(device_code.clone()),
        client_id,
        tenant_in_path: call.path_parameter("tenant").to_owned(),
        scope,
        expires: call.now + SignedDuration::from_secs(EXPIRES_IN),
        status,
    };
    let url = verification_url(call);
    let now = call.now;
    call.azure_mut().sign_ins.insert_device_authorization(user_code.clone(), row, now);
    let message = format!(
        "To sign in, use a web browser to open the page {url} and enter the code {user_code} to \
         authenticate."
    );
    let body = json!({
        "user_code": user_code,
        "device_code": device_code,
        "verification_uri": url,
        "expires_in": EXPIRES_IN,
        "interval": INTERVAL,
        "message": message,
    });
    Ok(ServiceReply::json(StatusCode::OK, &body))
}

/// The page at which users enter their code: on the emulator's own port, which browsers reach without the
/// proxy.
fn verification_url(call: &OperationContext<'_>) -> String {
    let base = call.local_url.unwrap_or("https://login.microsoft.com");
    format!("{base}/device")
}

fn new_user_code(ids: &mut IdGenerator) -> String {
    let id = ids.next_uuid();
    let letter = |byte: &u8| {
        let index = usize::from(*byte) % CODE_ALPHABET.len();
        CODE_ALPHABET.get(index).copied().map_or('A', char::from)
    };
    // The first six bytes of a random UUID have no fixed bits; of the next three, only four bits are fixed.
    id.as_bytes().iter().take(CODE_LENGTH).map(letter).collect()
}

/// The user's decision about a device's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceCodeDecision {
    Approve { user: Uuid },
    Decline,
}

/// Records the decision about a pending request.
pub fn decide_device_code(
    call: &mut OperationContext<'_>,
    user_code: &str,
    decision: DeviceCodeDecision,
) -> Result<(), TokenServiceError> {
    let user_code = user_code.trim();
    let row = call.azure().sign_ins.device_authorization(user_code);
    let row = row.ok_or_else(|| {
        DEVICE_CODE_UNKNOWN.with_description("The code is not that of a pending sign-in.")
    })?;
    if row.expires <= call.now {
        return Err(device_code_expired_error());
    }
    let status = match decision {
        DeviceCodeDecision::Approve { user } => DeviceAuthorizationStatus::Approved { user },
        DeviceCodeDecision::Decline => DeviceAuthorizationStatus::Declined,
    };
    if row.status == status {
        return Ok(());
    }
    if row.status != DeviceAuthorizationStatus::Pending {
        return Err(CODE_REDEEMED.with_description("The code was already used."));
    }
    if let DeviceCodeDecision::Approve { user } = decision {
        let directory = token_directory(call);
        let path = TenantInPath::find(directory, &row.tenant_in_path)?;
        let client = UserClient::find(directory, path, &row.client_id.to_string())?;
        let user = select_user(directory, &user.to_string())?;
        token_tenant(directory, path, &client, user)?;
    }
    call.azure_mut().sign_ins.set_device_status(user_code, status);
    Ok(())
}

/// `GET /device`: the page on which a user enters the code.
pub(super) fn show_device_page(call: &OperationContext<'_>) -> ServiceReply {
    let code = call.request.query("user_code").unwrap_or_default();
    device_page(code, enabled_users(call))
}

fn enabled_users<'a>(call: &'a OperationContext<'_>) -> impl Iterator<Item = &'a User> {
    token_directory(call).users().filter(|user| user.enabled)
}

/// `POST /device`: a user signs in, by selection (`user`) or with `username` and `password`, or cancels.
pub(super) fn submit_device_page(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, TokenServiceError> {
    let form = ClientTokenForm::from_request(call.request);
    let user_code = form.required("user_code")?;
    if form.field("decision") == Some("decline") {
        decide_device_code(call, user_code, DeviceCodeDecision::Decline)?;
        return Ok(message_page("Sign-in cancelled", "You can close this window."));
    }
    let directory = token_directory(call);
    let user = match (form.field("username"), form.field("user")) {
        (Some(name), _) => {
            let row = call.azure().sign_ins.device_authorization(user_code);
            let tenant = row.map_or("common", |row| &row.tenant_in_path);
            let path = TenantInPath::find(directory, tenant)?;
            sign_in_with_password(directory, path, name, form.required("password")?)?
        }
        (None, Some(named)) => select_user(directory, named)?,
        (None, None) => select_user(directory, form.required("user")?)?,
    };
    let decision = DeviceCodeDecision::Approve { user: user.object_id };
    decide_device_code(call, user_code, decision)?;
    Ok(message_page(
        "You have signed in",
        "You have signed in to the application on your device. You may now close this window.",
    ))
}

/// Exchanges a device code for tokens; pending until a user has decided.
pub(super) fn redeem_device_code(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    // MSAL sends the same code in both fields; version 1.0 has `code` only.
    let code = form.field("device_code").or_else(|| form.field("code"));
    let code = code.map_or_else(|| form.required("device_code"), Ok)?;
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let client = UserClient::find(directory, path, form.required("client_id")?)?;
    let user_code = code.split_once('.').map_or("", |(user_code, _)| user_code).to_owned();
    let row = call.azure().sign_ins.device_authorization(&user_code);
    let row = row.filter(|row| row.device_code.expose() == code).ok_or_else(|| {
        DEVICE_CODE_UNKNOWN.with_description("The provided value for 'device_code' is not valid.")
    })?;
    let client_id = client.client_id();
    if row.client_id != client_id {
        return Err(GRANT_INVALID.with_description(
            "The provided value for 'device_code' is not valid: it was issued to another \
             application.",
        ));
    }
    if row.expires <= call.now {
        return Err(device_code_expired_error());
    }
    let user = match row.status {
        DeviceAuthorizationStatus::Approved { user } => user,
        DeviceAuthorizationStatus::Pending => {
            return Err(AUTHORIZATION_PENDING.with_description(
                "OAuth 2.0 device flow error. Authorization is pending. Continue polling.",
            ));
        }
        DeviceAuthorizationStatus::Declined => {
            return Err(DEVICE_CODE_DECLINED.with_description("The user cancelled the sign-in."));
        }
        DeviceAuthorizationStatus::Redeemed => {
            return Err(CODE_REDEEMED.with_description("The device code was already redeemed."));
        }
    };
    let user = directory.user(user).cloned().ok_or_else(|| {
        USER_DELETED.with_description("The user account does not exist in the directory.")
    })?;
    require_enabled(&user)?;
    let tenant = token_tenant(directory, path, &client, &user)?.clone();
    let scope = row.scope.clone();
    let auth_method = client.authenticate(call, form)?;
    let session = UserSession { user, tenant, client_id, client, auth_method, nonce: None };
    let reply = session.issue_tokens(call, form, version, scope)?;
    let status = DeviceAuthorizationStatus::Redeemed;
    call.azure_mut().sign_ins.set_device_status(&user_code, status);
    Ok(reply)
}

fn device_code_expired_error() -> TokenServiceError {
    DEVICE_CODE_EXPIRED.with_description(
        "The verification code has expired. The user must start the sign-in again.",
    )
}
