//! The authorization endpoint, and the exchange of its codes (RFC 6749, 4.1).

use http::StatusCode;
use jiff::SignedDuration;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::directory::User;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::sign_ins::pkce::CodeChallenge;
use lanyard_emulator_state::sign_ins::sign_in_state::AuthorizationCode;
use url::Url;

use super::client::UserClient;
use super::discovery::EndpointVersion;
use super::error::{
    CODE_EXPIRED, CODE_REDEEMED, CODE_VERIFIER, GRANT_INVALID, GRANT_MALFORMED, LOGIN_REQUIRED,
    REDIRECT_URI_DIFFERS, REPLY_ADDRESS, RESPONSE_MODE_UNSUPPORTED, RESPONSE_TYPE_UNSUPPORTED,
    SIGN_IN_CANCELLED, TokenServiceError, USER_DELETED,
};
use super::sign_in_page::{authorization_page, error_page, form_post_page, message_page};
use super::tenant_in_path::TenantInPath;
use super::token_directory;
use super::token_form::ClientTokenForm;
use super::user_sign_in::{require_enabled, select_user, token_tenant};
use super::user_tokens::{UserSession, resolve_scope};

/// The lifetime of an authorization code, in seconds.
const CODE_SECONDS: i64 = 600;

/// How the parameters of the response reach the redirect URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseMode {
    Query,
    Fragment,
    FormPost,
}

/// The verified destination of the response.
#[derive(Debug, Clone)]
struct ResponseTarget {
    redirect_uri: String,
    mode: ResponseMode,
    state: Option<String>,
}

impl ResponseTarget {
    fn parse(form: &ClientTokenForm, client: &UserClient) -> Result<Self, TokenServiceError> {
        let redirect_uri = form.required("redirect_uri")?;
        if !client.allows_redirect(redirect_uri) {
            return Err(REPLY_ADDRESS.with_description(format!(
                "The redirect URI '{redirect_uri}' specified in the request does not match the \
                 redirect URIs configured for the application '{}'. Make sure the redirect URI \
                 sent in the request matches one added to your application.",
                client.client_id()
            )));
        }
        let mode = match form.field("response_mode") {
            None | Some("query") => ResponseMode::Query,
            Some("fragment") => ResponseMode::Fragment,
            Some("form_post") => ResponseMode::FormPost,
            Some(other) => {
                return Err(RESPONSE_MODE_UNSUPPORTED
                    .with_description(format!("'response_mode' '{other}' is not supported.")));
            }
        };
        let state = form.field("state").map(ToOwned::to_owned);
        Ok(Self { redirect_uri: redirect_uri.to_owned(), mode, state })
    }

    /// Sends parameters and the client's `state` to the redirect URI.
    fn reply(&self, parameters: &[(&str, &str)]) -> ServiceReply {
        let state = self.state.as_deref().map(|state| ("state", state));
        let parameters: Vec<_> = parameters.iter().copied().chain(state).collect();
        if self.mode == ResponseMode::FormPost {
            return form_post_page(&self.redirect_uri, &parameters);
        }
        let Ok(mut url) = Url::parse(&self.redirect_uri) else {
            return ServiceReply::text(StatusCode::BAD_REQUEST, "the redirect URI is no URL\n");
        };
        if self.mode == ResponseMode::Query {
            url.query_pairs_mut().extend_pairs(&parameters);
        } else {
            let mut fragment = url::form_urlencoded::Serializer::new(String::new());
            url.set_fragment(Some(&fragment.extend_pairs(&parameters).finish()));
        }
        ServiceReply::empty(StatusCode::FOUND).with_header("location", url.as_str())
    }

    fn error_reply(&self, error: &TokenServiceError) -> ServiceReply {
        let code = format!("AADSTS{}", error.code.number);
        let description = format!("{code}: {}", error.description);
        self.reply(&[("error", error.code.error), ("error_description", &description)])
            .with_rejection_reason(code)
    }
}

/// `GET` and `POST /{tenant}/oauth2/v2.0/authorize`: signs a user in, and sends an authorization code to
/// the redirect URI.
///
/// Errors of client and redirect URI are shown to the user, all others are sent to the redirect URI.
pub(super) fn authorize(call: &mut OperationContext<'_>) -> ServiceReply {
    let form = ClientTokenForm::from_query_and_form(call.request);
    let verified = verify_client_and_redirect(call, &form);
    let (client, target) = match verified {
        Ok(verified) => verified,
        Err(error) => return error_page(&error),
    };
    call.record_caller(client.client_id());
    let user = match select_signed_in_user(call, &form, &client) {
        Ok(Some(user)) => user,
        Ok(None) => {
            return authorization_page(client.display_name(), selectable_users(call, &client));
        }
        Err(error) => return target.error_reply(&error),
    };
    match issue_code(call, &form, &client, &user) {
        Ok(code) => {
            target.reply(&[("code", &code), ("session_state", &user.object_id.to_string())])
        }
        Err(error) => target.error_reply(&error),
    }
}

fn verify_client_and_redirect(
    call: &OperationContext<'_>,
    form: &ClientTokenForm,
) -> Result<(UserClient, ResponseTarget), TokenServiceError> {
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let client = UserClient::find(directory, path, form.required("client_id")?)?;
    let target = ResponseTarget::parse(form, &client)?;
    Ok((client, target))
}

/// The users among whom a person selects: those of the tenant in the path or of the client's tenant.
fn selectable_users<'a>(
    call: &'a OperationContext<'_>,
    client: &'a UserClient,
) -> impl Iterator<Item = &'a User> {
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"));
    let users = directory.users().filter(|user| user.enabled);
    users.filter(move |user| {
        path.as_ref().is_ok_and(|path| token_tenant(directory, *path, client, user).is_ok())
    })
}

/// The user who signs in: selected on the page, or the automatic user of the settings. `None` if a person has
/// to select.
fn select_signed_in_user(
    call: &OperationContext<'_>,
    form: &ClientTokenForm,
    client: &UserClient,
) -> Result<Option<User>, TokenServiceError> {
    if form.field("response_type") != Some("code") {
        return Err(RESPONSE_TYPE_UNSUPPORTED.with_description(format!(
            "response_type '{}' is not enabled for the application; the emulator issues codes.",
            form.field("response_type").unwrap_or_default()
        )));
    }
    if form.field("decision") == Some("decline") {
        return Err(
            SIGN_IN_CANCELLED.with_description("User declined to consent to access the app.")
        );
    }
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    if let Some(named) = form.field("user") {
        let user = select_user(directory, named)?;
        token_tenant(directory, path, client, user)?;
        return Ok(Some(user.clone()));
    }
    let automatic = call.azure().sign_ins.settings.automatic_user.map(|id| id.to_string());
    let hinted = form.field("login_hint").filter(|hint| directory.user_by_name(hint).is_some());
    let automatic = automatic.as_deref().map(|automatic| hinted.unwrap_or(automatic));
    let user = automatic.and_then(|named| select_user(directory, named).ok());
    let user = user.filter(|user| token_tenant(directory, path, client, user).is_ok());
    if user.is_none() && form.field("prompt") == Some("none") {
        return Err(LOGIN_REQUIRED
            .with_description("Session information is not sufficient for single-sign-on."));
    }
    Ok(user.cloned())
}

/// Stores an authorization code for a user.
fn issue_code(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    client: &UserClient,
    user: &User,
) -> Result<String, TokenServiceError> {
    let challenge = form.field("code_challenge").map(|challenge| {
        CodeChallenge::parse(challenge, form.field("code_challenge_method"))
            .map_err(|invalid| GRANT_MALFORMED.with_description(format!("{invalid}.")))
    });
    let scope = form.require_scope(EndpointVersion::V2)?;
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let tenant = token_tenant(directory, path, client, user)?;
    resolve_scope(call, tenant, client, &scope)?;
    let code = AuthorizationCode {
        client_id: client.client_id(),
        user: user.object_id,
        redirect_uri: form.required("redirect_uri")?.to_owned(),
        scope,
        challenge: challenge.transpose()?,
        nonce: form.field("nonce").map(ToOwned::to_owned),
        expires: call.now + SignedDuration::from_secs(CODE_SECONDS),
        redeemed: false,
    };
    let text = format!("1.{}{}", call.ids.next_hex32(), call.ids.next_hex32());
    let now = call.now;
    call.azure_mut().sign_ins.insert_authorization_code(&text, code, now);
    Ok(text)
}

/// Exchanges an authorization code for tokens, once.
pub(super) fn redeem_authorization_code(
    call: &mut OperationContext<'_>,
    form: &ClientTokenForm,
    version: EndpointVersion,
) -> Result<ServiceReply, TokenServiceError> {
    let text = form.required("code")?;
    let directory = token_directory(call);
    let path = TenantInPath::find(directory, call.path_parameter("tenant"))?;
    let client = UserClient::find(directory, path, form.required("client_id")?)?;
    let code = call.azure().sign_ins.authorization_code(text).cloned().ok_or_else(|| {
        GRANT_MALFORMED.with_description("Invalid request. Request is malformed or invalid.")
    })?;
    verify_code(call, form, &client, &code)?;
    let user = directory.user(code.user).cloned().ok_or_else(|| {
        USER_DELETED.with_description("The user account does not exist in the directory.")
    })?;
    require_enabled(&user)?;
    let tenant = token_tenant(directory, path, &client, &user)?.clone();
    let client_id = client.client_id();
    let auth_method = client.authenticate(call, form)?;
    let scope = form.requested_scope(version).unwrap_or(code.scope);
    let session = UserSession { user, tenant, client_id, client, auth_method, nonce: code.nonce };
    let reply = session.issue_tokens(call, form, version, scope)?;
    call.azure_mut().sign_ins.mark_code_redeemed(text);
    Ok(reply)
}

/// Checks that a code is that of the client, its redirect URI and its verifier, and neither expired nor used.
fn verify_code(
    call: &OperationContext<'_>,
    form: &ClientTokenForm,
    client: &UserClient,
    code: &AuthorizationCode,
) -> Result<(), TokenServiceError> {
    if code.client_id != client.client_id() {
        return Err(GRANT_INVALID.with_description(
            "The provided value for the 'code' parameter is not valid: the code was issued to \
             another application.",
        ));
    }
    if code.redeemed {
        return Err(CODE_REDEEMED.with_description(
            "OAuth2 Authorization code was already redeemed, please retry with a new valid code \
             or use an existing refresh token.",
        ));
    }
    if code.expires <= call.now {
        return Err(CODE_EXPIRED.with_description(
            "The provided authorization code or refresh token has expired. Send a new interactive \
             authorization request for this user and resource.",
        ));
    }
    let redirect_uri = form.required("redirect_uri")?;
    if redirect_uri != code.redirect_uri {
        return Err(REDIRECT_URI_DIFFERS.with_description(format!(
            "The reply address '{redirect_uri}' does not match the reply address '{}' provided \
             when requesting Authorization code.",
            code.redirect_uri
        )));
    }
    let verifier = form.field("code_verifier");
    let is_verified = match (&code.challenge, verifier) {
        (Some(challenge), Some(verifier)) => challenge.is_verified_by(verifier),
        (None, None) => true,
        _ => false,
    };
    if is_verified {
        return Ok(());
    }
    Err(CODE_VERIFIER.with_description(
        "The Code_Verifier does not match the code_challenge supplied in the authorization \
         request.",
    ))
}

/// `GET /{tenant}/oauth2[/v2.0]/logout`: ends the session of the browser, of which the emulator has none.
pub(super) fn log_out(call: &OperationContext<'_>) -> ServiceReply {
    let target = call.request.query("post_logout_redirect_uri");
    let client = call.request.query("client_id").and_then(|client_id| {
        let directory = token_directory(call);
        let path = TenantInPath::find(directory, call.path_parameter("tenant")).ok()?;
        UserClient::find(directory, path, client_id).ok()
    });
    match (target, client) {
        (Some(target), Some(client)) if client.allows_redirect(target) => {
            ServiceReply::empty(StatusCode::FOUND).with_header("location", target)
        }
        _ => message_page("You signed out", "It's a good idea to close all browser windows."),
    }
}
