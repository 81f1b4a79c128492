use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use lanyard_emulator::testing::*;
use lanyard_emulator_core::emulated_service::EngineError;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{Group, Tenant};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

use crate::token_service::SERVICE;

const AZURE_CLI: &str = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";
const ARM_SCOPE: &str = "https://management.core.windows.net//.default";
/// What MSAL adds to every scope.
const CLI_SCOPE: &str =
    "https://management.core.windows.net//.default openid profile offline_access";
const OTHER_TENANT: &str = "11111111-0000-4000-8000-000000000002";
const OTHER_USER: &str = "bob@fabrikam.onmicrosoft.com";
const REDIRECT: &str = "http://localhost:8400";

/// The test principals, and a second tenant with a user.
fn azure_with_two_tenants() -> AzureState {
    let mut azure = azure_with_test_principals();
    let domains = vec!["fabrikam.onmicrosoft.com".to_owned()];
    let id = OTHER_TENANT.parse().unwrap();
    let tenant = Tenant::new(id, domains, untrusted_key(), start_time()).unwrap();
    let mut user = test_user(OTHER_USER, Uuid::from_u128(0xe2));
    user.tenant = tenant.id.clone();
    azure.directory.tenants.push(tenant);
    azure.directory.insert_user(user);
    azure
}

fn fixture() -> EngineFixture {
    EngineFixture::new(azure_with_two_tenants())
}

fn post_form(probe: &EngineFixture, path: &str, fields: &[(&str, &str)]) -> ServiceReply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let url = format!("https://{LOGIN}/{path}");
    probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &body)
}

/// Posts fields to the v2.0 token endpoint, as the Azure CLI unless they name a client.
fn token(probe: &EngineFixture, tenant: &str, fields: &[(&str, &str)]) -> ServiceReply {
    let mut all = fields.to_vec();
    if !fields.iter().any(|(name, _)| *name == "client_id") {
        all.push(("client_id", AZURE_CLI));
    }
    post_form(probe, &format!("{tenant}/oauth2/v2.0/token"), &all)
}

fn password_fields<'a>(user: &'a str, password: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("grant_type", "password"),
        ("username", user),
        ("password", password),
        ("scope", CLI_SCOPE),
        ("client_info", "1"),
    ]
}

fn sign_in(probe: &EngineFixture) -> Value {
    let reply = token(probe, "organizations", &password_fields(USER, USER_PASSWORD));
    assert_eq!(reply.status, StatusCode::OK, "{}", reply_json(&reply));
    reply_json(&reply)
}

fn refresh(probe: &EngineFixture, tenant: &str, refresh_token: &str, scope: &str) -> ServiceReply {
    let fields =
        [("grant_type", "refresh_token"), ("refresh_token", refresh_token), ("scope", scope)];
    token(probe, tenant, &fields)
}

fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body[field].as_str().unwrap_or_default()
}

#[test]
fn password_grant_returns_the_tokens_and_the_account_that_msal_reads() {
    let body = sign_in(&fixture());
    assert_eq!(
        body["scope"],
        format!(
            "openid profile https://management.core.windows.net//user_impersonation {ARM_SCOPE}"
        )
    );
    let access = token_claims(text(&body, "access_token"));
    assert_eq!(access["aud"], "https://management.core.windows.net/");
    assert_eq!(access["scp"], "user_impersonation");
    assert_eq!(access["appid"], AZURE_CLI);
    assert_eq!(access["appidacr"], "0");
    assert_eq!((&access["upn"], &access["unique_name"]), (&json!(USER), &json!(USER)));
    assert_eq!(access["oid"], json!(USER_OBJECT_ID));
    assert_eq!(access["tid"], TENANT);
    let id = token_claims(text(&body, "id_token"));
    assert_eq!(id["aud"], AZURE_CLI);
    assert_eq!(id["iss"], format!("https://{LOGIN}/{TENANT}/v2.0"));
    assert_eq!((&id["ver"], &id["preferred_username"]), (&json!("2.0"), &json!(USER)));
    assert_ne!(id["sub"], access["sub"]);
    let info = URL_SAFE_NO_PAD.decode(text(&body, "client_info")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(info, json!({ "uid": USER_OBJECT_ID, "utid": TENANT }));
    assert!(!text(&body, "refresh_token").contains(AZURE_CLI));
}

#[test]
fn tokens_are_returned_for_the_scopes_of_openid_connect_only_on_request() {
    let mut fields = password_fields(USER, USER_PASSWORD);
    fields[3] = ("scope", ARM_SCOPE);
    fields.truncate(4);
    let body = reply_json(&token(&fixture(), TENANT, &fields));
    for absent in ["refresh_token", "id_token", "client_info"] {
        assert!(body.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn password_grant_of_version_1_names_a_resource_and_returns_every_token() {
    let fields = [
        ("grant_type", "password"),
        ("client_id", AZURE_CLI),
        ("username", USER),
        ("password", USER_PASSWORD),
        ("resource", "https://vault.azure.net"),
    ];
    let body = reply_json(&post_form(&fixture(), &format!("{DOMAIN}/oauth2/token"), &fields));
    assert_eq!(body["resource"], "https://vault.azure.net");
    assert_eq!(
        (&body["expires_in"], &body["scope"]),
        (&json!("3599"), &json!("user_impersonation"))
    );
    let id = token_claims(text(&body, "id_token"));
    assert_eq!(id["iss"], format!("https://sts.windows.net/{TENANT}/"));
    assert_eq!(id["upn"], USER);
    assert!(body["refresh_token"].is_string());
}

/// The fields of a password grant with one of them replaced.
fn replaced<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = password_fields(USER, USER_PASSWORD);
    fields.retain(|(field, _)| *field != name);
    fields.push((name, value));
    fields
}

#[test]
fn each_invalid_password_grant_has_its_code_status_and_error() {
    let mut azure = azure_with_two_tenants();
    let mut disabled = test_user("eve@contoso.onmicrosoft.com", Uuid::from_u128(0xe3));
    disabled.enabled = false;
    azure.directory.insert_user(disabled);
    let probe = EngineFixture::new(azure);
    let unknown_client = "22222222-0000-4000-8000-0000000000ff";
    let good = || password_fields(USER, USER_PASSWORD);
    let cases = [
        ("common", good(), 9_001_023, 400, "invalid_request"),
        ("consumers", good(), 9_001_023, 400, "invalid_request"),
        ("nowhere.example", good(), 90_002, 400, "invalid_request"),
        (OTHER_TENANT, good(), 50_034, 400, "invalid_grant"),
        (
            TENANT,
            replaced("username", "missing@contoso.onmicrosoft.com"),
            50_034,
            400,
            "invalid_grant",
        ),
        (TENANT, replaced("password", "wrong"), 50_126, 400, "invalid_grant"),
        (TENANT, replaced("username", "eve@contoso.onmicrosoft.com"), 50_057, 400, "invalid_grant"),
        (TENANT, replaced("client_id", unknown_client), 700_016, 400, "unauthorized_client"),
        (TENANT, replaced("client_id", APP), 7_000_218, 401, "invalid_client"),
        ("organizations", replaced("client_id", APP), 50_194, 400, "invalid_request"),
        (TENANT, replaced("client_secret", "x"), 700_025, 401, "invalid_client"),
        (
            TENANT,
            replaced("scope", "https://example.com/.default"),
            500_011,
            400,
            "invalid_resource",
        ),
        (TENANT, replaced("scope", ""), 900_144, 400, "invalid_request"),
        (TENANT, replaced("password", ""), 900_144, 400, "invalid_request"),
    ];
    for (tenant, fields, number, status, error) in cases {
        let reply = token(&probe, tenant, &fields);
        let body = reply_json(&reply);
        assert_eq!(body["error_codes"], json!([number]), "{tenant} {fields:?}: {body}");
        assert_eq!((reply.status.as_u16(), text(&body, "error")), (status, error), "{fields:?}");
    }
}

#[test]
fn registered_application_is_a_public_client_only_if_it_says_so() {
    let properties =
        json!({ "isFallbackPublicClient": true, "signInAudience": "AzureADMultipleOrgs" });
    let mut azure = azure_with_two_tenants();
    application_mut(&mut azure, APP).properties = properties.as_object().cloned().unwrap();
    let probe = EngineFixture::new(azure);
    for tenant in [TENANT, "organizations"] {
        let body = reply_json(&token(&probe, tenant, &replaced("client_id", APP)));
        let claims = token_claims(text(&body, "access_token"));
        assert_eq!((&claims["appid"], &claims["appidacr"]), (&json!(APP), &json!("0")), "{body}");
    }
    let mut fields = replaced("client_id", APP);
    fields.push(("client_secret", SECRET));
    let body = reply_json(&token(&probe, TENANT, &fields));
    assert_eq!(token_claims(text(&body, "access_token"))["appidacr"], "1");
}

#[test]
fn application_without_a_service_principal_has_its_own_code() {
    let mut azure = azure_with_two_tenants();
    azure.directory.remove_service_principal(Uuid::from_u128(0xc1));
    let probe = EngineFixture::new(azure);
    let reply = probe.request_token(&[("client_id", APP), ("client_secret", SECRET)]);
    assert_eq!(aadsts_code(&reply), Some(7_000_229));
    assert_eq!(aadsts_code(&token(&probe, TENANT, &replaced("client_id", APP))), Some(7_000_229));
}

#[test]
fn one_refresh_token_is_redeemed_for_each_resource_and_endpoint() {
    let probe = fixture();
    let body = sign_in(&probe);
    let mut refresh_token = text(&body, "refresh_token").to_owned();
    let cases = [
        (TENANT, "https://graph.microsoft.com//.default openid", "https://graph.microsoft.com/"),
        ("organizations", "https://vault.azure.net/.default", "https://vault.azure.net"),
        (DOMAIN, CLI_SCOPE, "https://management.core.windows.net/"),
        ("common", "User.Read", "https://graph.microsoft.com"),
    ];
    for (tenant, scope, audience) in cases {
        let body = reply_json(&refresh(&probe, tenant, &refresh_token, scope));
        let claims = token_claims(text(&body, "access_token"));
        assert_eq!((&claims["aud"], &claims["upn"]), (&json!(audience), &json!(USER)), "{body}");
        let next = text(&body, "refresh_token").to_owned();
        assert_ne!(next, refresh_token);
        refresh_token = next;
    }
    // Without a scope, that of the last request.
    let fields = [("grant_type", "refresh_token"), ("refresh_token", &*refresh_token)];
    let body = reply_json(&token(&probe, TENANT, &fields));
    assert_eq!(token_claims(text(&body, "access_token"))["aud"], "https://graph.microsoft.com");
}

#[test]
fn refresh_token_expires_after_ninety_days_without_use() {
    let probe = fixture();
    let first = text(&sign_in(&probe), "refresh_token").to_owned();
    let day = SignedDuration::from_hours(24);
    let advance = |days| {
        let clock = &mut probe.engine.state().azure.clock;
        **clock = clock.advance_by(day * days).unwrap();
    };
    advance(89);
    let second = reply_json(&refresh(&probe, TENANT, &first, ARM_SCOPE));
    let second = text(&second, "refresh_token").to_owned();
    advance(1);
    let reply = refresh(&probe, TENANT, &first, ARM_SCOPE);
    let body = reply_json(&reply);
    assert_eq!((aadsts_code(&reply), text(&body, "error")), (Some(700_082), "invalid_grant"));
    assert_eq!(body["suberror"], "bad_token");
    assert!(text(&body, "error_description").contains("90.00:00:00"), "{body}");
    assert_eq!(refresh(&probe, TENANT, &second, ARM_SCOPE).status, StatusCode::OK);
}

#[test]
fn refresh_token_is_revoked_with_the_account_the_password_and_the_sessions() {
    type Change = fn(&mut AzureState);
    let cases: [(&str, Change, u64); 4] = [
        (
            "disabled",
            |azure| azure.directory.user_mut(USER_OBJECT_ID).unwrap().enabled = false,
            50_057,
        ),
        (
            "password",
            |azure| {
                let user = azure.directory.user_mut(USER_OBJECT_ID).unwrap();
                user.password = RedactedText::new("another".to_owned());
            },
            50_173,
        ),
        (
            "sessions",
            |azure| {
                let user = azure.directory.user_mut(USER_OBJECT_ID).unwrap();
                let name = "signInSessionsValidFromDateTime".to_owned();
                user.properties.insert(name, json!("2026-11-21T12:00:01Z"));
            },
            50_173,
        ),
        ("deleted", |azure| drop(azure.directory.remove_user(USER_OBJECT_ID)), 50_034),
    ];
    for (name, change, number) in cases {
        let probe = fixture();
        let refresh_token = text(&sign_in(&probe), "refresh_token").to_owned();
        change(&mut probe.engine.state().azure);
        let reply = refresh(&probe, TENANT, &refresh_token, ARM_SCOPE);
        assert_eq!(aadsts_code(&reply), Some(number), "{name}");
    }
}

#[test]
fn refresh_token_is_valid_only_for_its_client_tenant_and_state() {
    let probe = fixture();
    let refresh_token = text(&sign_in(&probe), "refresh_token").to_owned();
    let other_client = [
        ("grant_type", "refresh_token"),
        ("client_id", "1950a258-227b-4e31-a9cf-717495945fc2"),
        ("refresh_token", &refresh_token),
        ("scope", ARM_SCOPE),
    ];
    assert_eq!(aadsts_code(&token(&probe, TENANT, &other_client)), Some(70_000));
    let elsewhere = refresh(&probe, OTHER_TENANT, &refresh_token, ARM_SCOPE);
    assert_eq!(aadsts_code(&elsewhere), Some(50_020));
    let mut altered = refresh_token.clone();
    let last = if altered.pop() == Some('A') { 'B' } else { 'A' };
    altered.push(last);
    for invalid in ["opaque", "1.", "1.AAAA", &altered] {
        let reply = refresh(&probe, TENANT, invalid, ARM_SCOPE);
        assert_eq!(aadsts_code(&reply), Some(9_002_313), "{invalid}");
    }
    let another_state = refresh(&fixture(), TENANT, &refresh_token, ARM_SCOPE);
    assert_eq!(aadsts_code(&another_state), Some(9_002_313));
}

fn start_device_flow(probe: &EngineFixture, tenant: &str) -> Value {
    let fields = [("client_id", AZURE_CLI), ("scope", CLI_SCOPE)];
    let reply = post_form(probe, &format!("{tenant}/oauth2/v2.0/devicecode"), &fields);
    assert_eq!(reply.status, StatusCode::OK);
    reply_json(&reply)
}

/// Polls as MSAL does, which sends the code in both fields.
fn poll(probe: &EngineFixture, tenant: &str, device_code: &str) -> ServiceReply {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", device_code),
        ("code", device_code),
        ("client_info", "1"),
    ];
    token(probe, tenant, &fields)
}

fn enter_code(probe: &EngineFixture, fields: &[(&str, &str)]) -> ServiceReply {
    post_form(probe, "common/oauth2/deviceauth", fields)
}

#[test]
fn device_code_is_pending_until_a_user_signs_in_and_is_redeemed_once() {
    let probe = fixture();
    let flow = start_device_flow(&probe, "organizations");
    assert_eq!((&flow["expires_in"], &flow["interval"]), (&json!(900), &json!(5)));
    assert!(text(&flow, "message").contains(text(&flow, "user_code")), "{flow}");
    assert!(text(&flow, "verification_uri").ends_with("/device"), "{flow}");
    let code = text(&flow, "device_code");
    let pending = poll(&probe, "organizations", code);
    assert_eq!(reply_json(&pending)["error"], "authorization_pending");
    assert_eq!((aadsts_code(&pending), pending.status.as_u16()), (Some(70_016), 400));

    let user_code = text(&flow, "user_code").to_lowercase();
    let wrong = [("user_code", &*user_code), ("username", USER), ("password", "x")];
    assert_eq!(enter_code(&probe, &wrong).rejection_reason.as_deref(), Some("AADSTS50126"));
    let right = [("user_code", &*user_code), ("username", USER), ("password", USER_PASSWORD)];
    assert_eq!(enter_code(&probe, &right).status, StatusCode::OK);
    let reply = poll(&probe, TENANT, code);
    assert_eq!(reply.status, StatusCode::OK, "{}", reply_json(&reply));
    let body = reply_json(&reply);
    assert_eq!(token_claims(text(&body, "access_token"))["upn"], USER);
    for field in ["refresh_token", "id_token", "client_info"] {
        assert!(body[field].is_string(), "{field}");
    }
    assert_eq!(aadsts_code(&poll(&probe, TENANT, code)), Some(54_005));
    let user = [("user_code", &*user_code), ("user", OTHER_USER)];
    assert_eq!(enter_code(&probe, &user).rejection_reason.as_deref(), Some("AADSTS54005"));
}

#[test]
fn each_other_end_of_the_device_flow_has_its_error() {
    let probe = fixture();
    let declined = start_device_flow(&probe, TENANT);
    let fields = [("user_code", text(&declined, "user_code")), ("decision", "decline")];
    assert_eq!(enter_code(&probe, &fields).status, StatusCode::OK);
    let reply = reply_json(&poll(&probe, TENANT, text(&declined, "device_code")));
    assert_eq!(reply["error"], "authorization_declined");

    let unknown = reply_json(&poll(&probe, TENANT, "ABCDEFGHJ.0123"));
    assert_eq!(
        (text(&unknown, "error"), &unknown["error_codes"]),
        ("bad_verification_code", &json!([70_018]))
    );
    let unknown = [("user_code", "ABCDEFGHJ"), ("user", USER)];
    assert_eq!(enter_code(&probe, &unknown).rejection_reason.as_deref(), Some("AADSTS70018"));

    let flow = start_device_flow(&probe, TENANT);
    let foreign = [("user_code", text(&flow, "user_code")), ("user", OTHER_USER)];
    assert_eq!(enter_code(&probe, &foreign).rejection_reason.as_deref(), Some("AADSTS50020"));
    probe.clock.advance(std::time::Duration::from_mins(15));
    let expired = reply_json(&poll(&probe, TENANT, text(&flow, "device_code")));
    assert_eq!(
        (text(&expired, "error"), &expired["error_codes"]),
        ("expired_token", &json!([70_019]))
    );
    let late = [("user_code", text(&flow, "user_code")), ("user", USER)];
    assert_eq!(enter_code(&probe, &late).rejection_reason.as_deref(), Some("AADSTS70019"));
}

#[test]
fn the_automatic_user_signs_in_to_devices_of_the_own_tenant() {
    let mut azure = azure_with_two_tenants();
    azure.sign_ins.settings.automatic_user = Some(USER_OBJECT_ID);
    let probe = EngineFixture::new(azure);
    for (tenant, expected) in
        [("organizations", None), (TENANT, None), (OTHER_TENANT, Some(70_016))]
    {
        let flow = start_device_flow(&probe, tenant);
        let reply = poll(&probe, tenant, text(&flow, "device_code"));
        assert_eq!(aadsts_code(&reply), expected, "{tenant}");
    }
}

#[test]
fn device_page_is_served_on_the_own_port() {
    let probe = fixture();
    for (ingress, url) in [
        (Ingress::Port, "http://127.0.0.1/device"),
        (Ingress::Tunnel, "https://login.microsoft.com/device"),
    ] {
        let reply = probe.get(ingress, url, &[]);
        assert_eq!(reply.status, StatusCode::OK);
        let page = String::from_utf8(reply.body.to_vec()).unwrap();
        assert!(page.contains(USER) && page.contains(OTHER_USER), "{page}");
    }
}

const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// The authorization request of the Azure CLI, with fields replaced or added.
fn authorization_url(tenant: &str, changes: &[(&str, &str)]) -> String {
    let defaults = [
        ("client_id", AZURE_CLI),
        ("response_type", "code"),
        ("redirect_uri", REDIRECT),
        ("scope", CLI_SCOPE),
        ("state", "st&te"),
        ("nonce", "n0nce"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("prompt", "select_account"),
    ];
    let is_changed = |field: &str| changes.iter().any(|(name, _)| *name == field);
    let fields = defaults.into_iter().filter(|(name, _)| !is_changed(name));
    let fields = fields.chain(changes.iter().copied());
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    format!("https://{LOGIN}/{tenant}/oauth2/v2.0/authorize?{query}")
}

/// Selects a user on the page of an authorization request.
fn select(probe: &EngineFixture, url: &str, fields: &[(&str, &str)]) -> ServiceReply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    probe.send_request(Ingress::Tunnel, &Method::POST, url, &[], &body)
}

/// The parameters of a redirection in the query.
fn redirected(reply: &ServiceReply) -> Vec<(String, String)> {
    assert_eq!(reply.status, StatusCode::FOUND, "{:?}", reply.body);
    let url = Url::parse(reply.header("location").unwrap()).unwrap();
    url.query_pairs().into_owned().collect()
}

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> &'a str {
    parameters.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

fn authorize_user(probe: &EngineFixture) -> String {
    let reply = select(probe, &authorization_url("organizations", &[]), &[("user", USER)]);
    let parameters = redirected(&reply);
    assert_eq!(parameter(&parameters, "state"), "st&te");
    parameter(&parameters, "code").to_owned()
}

/// Redeems a code with the verifier, with fields replaced or added.
fn redeem(probe: &EngineFixture, code: &str, changes: &[(&str, &str)]) -> ServiceReply {
    let defaults = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
        ("scope", CLI_SCOPE),
        ("client_info", "1"),
    ];
    let is_changed = |field: &str| changes.iter().any(|(name, _)| *name == field);
    let mut fields: Vec<_> = defaults.into_iter().filter(|(name, _)| !is_changed(name)).collect();
    fields.extend(changes.iter().filter(|(_, value)| !value.is_empty()).copied());
    token(probe, "organizations", &fields)
}

#[test]
fn authorization_code_is_redeemed_once_with_its_verifier() {
    let probe = fixture();
    let page = probe.get(Ingress::Tunnel, &authorization_url("organizations", &[]), &[]);
    let text_of_page = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(text_of_page.contains("Microsoft Azure CLI"), "{text_of_page}");
    assert!(text_of_page.contains(USER) && text_of_page.contains(OTHER_USER));
    let code = authorize_user(&probe);
    for (changes, expected) in [
        (&[("code_verifier", CHALLENGE)][..], 501_481),
        (&[("code_verifier", "")], 501_481),
        (&[("redirect_uri", "http://localhost:8401")], 500_112),
        (&[("client_id", "1950a258-227b-4e31-a9cf-717495945fc2")], 70_000),
        (&[("code", "1.unknown")], 9_002_313),
    ] {
        assert_eq!(aadsts_code(&redeem(&probe, &code, changes)), Some(expected), "{changes:?}");
    }
    let reply = redeem(&probe, &code, &[]);
    assert_eq!(reply.status, StatusCode::OK, "{}", reply_json(&reply));
    let body = reply_json(&reply);
    assert_eq!(token_claims(text(&body, "id_token"))["nonce"], "n0nce");
    assert_eq!(token_claims(text(&body, "access_token"))["upn"], USER);
    assert_eq!(aadsts_code(&redeem(&probe, &code, &[])), Some(54_005));

    let late = authorize_user(&probe);
    probe.clock.advance(std::time::Duration::from_mins(10));
    assert_eq!(aadsts_code(&redeem(&probe, &late, &[])), Some(70_008));
}

#[test]
fn plain_challenge_and_no_challenge_are_accepted() {
    let probe = fixture();
    let plain = [("code_challenge", VERIFIER), ("code_challenge_method", "plain"), ("user", USER)];
    let url = authorization_url(TENANT, &plain);
    let code = redirected(&probe.get(Ingress::Tunnel, &url, &[]));
    assert_eq!(redeem(&probe, parameter(&code, "code"), &[]).status, StatusCode::OK);
    let none = [("code_challenge", ""), ("code_challenge_method", ""), ("user", USER)];
    let code = redirected(&probe.get(Ingress::Tunnel, &authorization_url(TENANT, &none), &[]));
    let code = parameter(&code, "code");
    assert_eq!(aadsts_code(&redeem(&probe, code, &[])), Some(501_481));
    assert_eq!(redeem(&probe, code, &[("code_verifier", "")]).status, StatusCode::OK);
}

#[test]
fn response_reaches_the_redirect_uri_in_each_mode() {
    let mut azure = azure_with_two_tenants();
    azure.sign_ins.settings.automatic_user = Some(USER_OBJECT_ID);
    let probe = EngineFixture::new(azure);
    let get = |mode| {
        let url = authorization_url("organizations", &[("response_mode", mode)]);
        probe.get(Ingress::Tunnel, &url, &[])
    };
    assert!(!parameter(&redirected(&get("query")), "code").is_empty());
    let fragment = get("fragment");
    let location = fragment.header("location").unwrap();
    assert!(location.starts_with("http://localhost:8400/#code=1."), "{location}");
    let page = String::from_utf8(get("form_post").body.to_vec()).unwrap();
    assert!(page.contains("action=\"http://localhost:8400\""), "{page}");
    assert!(page.contains("name=\"state\" value=\"st&amp;te\""), "{page}");
    assert_eq!(get("web_message").rejection_reason.as_deref(), Some("AADSTS70007"));
}

#[test]
fn invalid_client_and_redirect_uri_are_shown_and_other_errors_are_redirected() {
    let probe = fixture();
    let shown = [
        ("client_id", "22222222-0000-4000-8000-0000000000ff", "AADSTS700016"),
        ("redirect_uri", "http://127.0.0.1:8400", "AADSTS50011"),
        ("redirect_uri", "http://localhost:8400/callback", "AADSTS50011"),
        ("redirect_uri", "https://localhost:8400", "AADSTS50011"),
        ("redirect_uri", "http://localhost.example:8400", "AADSTS50011"),
        ("redirect_uri", "", "AADSTS900144"),
    ];
    for (name, value, expected) in shown {
        let url = authorization_url("organizations", &[(name, value)]);
        let reply = probe.get(Ingress::Tunnel, &url, &[]);
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{value}");
        assert_eq!(reply.rejection_reason.as_deref(), Some(expected), "{value}");
    }
    let redirections = [
        (vec![("response_type", "id_token")], "unsupported_response_type"),
        (vec![("prompt", "none")], "login_required"),
        (vec![("decision", "decline")], "access_denied"),
        (vec![("user", USER), ("scope", "https://example.com/.default")], "invalid_resource"),
        (vec![("user", USER), ("code_challenge", "short")], "invalid_grant"),
        (vec![("user", "unknown@contoso.onmicrosoft.com")], "invalid_grant"),
    ];
    for (changes, expected) in redirections {
        let url = authorization_url("organizations", &changes);
        let parameters = redirected(&probe.get(Ingress::Tunnel, &url, &[]));
        assert_eq!(parameter(&parameters, "error"), expected, "{changes:?}");
        assert_eq!(parameter(&parameters, "state"), "st&te");
    }
    let foreign = authorization_url(TENANT, &[("user", OTHER_USER)]);
    let parameters = redirected(&probe.get(Ingress::Tunnel, &foreign, &[]));
    assert!(parameter(&parameters, "error_description").starts_with("AADSTS50020"));
}

#[test]
fn web_application_redeems_its_code_with_a_credential() {
    let redirect = "https://app.contoso.test/callback";
    let properties = json!({ "web": { "redirectUris": [redirect] } });
    let mut azure = azure_with_two_tenants();
    application_mut(&mut azure, APP).properties = properties.as_object().cloned().unwrap();
    let probe = EngineFixture::new(azure);
    let changes = [("client_id", APP), ("redirect_uri", redirect), ("user", USER)];
    let parameters =
        redirected(&probe.get(Ingress::Tunnel, &authorization_url(TENANT, &changes), &[]));
    let code = parameter(&parameters, "code");
    let fields = |secret: &'static str| {
        vec![
            ("grant_type", "authorization_code"),
            ("client_id", APP),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", VERIFIER),
            ("client_secret", secret),
        ]
    };
    for (secret, expected) in [("", Some(7_000_218)), ("wrong", Some(7_000_215)), (SECRET, None)] {
        assert_eq!(aadsts_code(&token(&probe, TENANT, &fields(secret))), expected, "{secret}");
    }
}

#[test]
fn access_token_of_an_application_contains_the_groups_of_the_user() {
    let mut azure = azure_with_two_tenants();
    let properties = json!({
        "identifierUris": ["api://files"],
        "groupMembershipClaims": "SecurityGroup",
        "api": {
            "requestedAccessTokenVersion": 2,
            "oauth2PermissionScopes": [{ "value": "Files.Read", "isEnabled": true }],
        },
    });
    application_mut(&mut azure, APP).properties = properties.as_object().cloned().unwrap();
    let group = |id: u128, member: Uuid| Group {
        object_id: Uuid::from_u128(id),
        tenant: TENANT.parse().unwrap(),
        display_name: "group".to_owned(),
        created: start_time(),
        members: [member].into(),
        owners: Vec::new(),
        properties: serde_json::Map::new(),
    };
    azure.directory.insert_group(group(0xf1, USER_OBJECT_ID));
    azure.directory.insert_group(group(0xf2, Uuid::from_u128(0xf1)));
    let probe = EngineFixture::new(azure);
    let scope = "api://files/Files.Read openid";
    let body = reply_json(&token(&probe, TENANT, &replaced("scope", scope)));
    let claims = token_claims(text(&body, "access_token"));
    assert_eq!(claims["groups"], json!([Uuid::from_u128(0xf1), Uuid::from_u128(0xf2)]));
    assert_eq!((&claims["aud"], &claims["azp"]), (&json!(APP), &json!(AZURE_CLI)));
    assert_eq!(claims["scp"], "Files.Read");
}

#[test]
fn capabilities_of_the_client_are_in_the_token() {
    let claims = r#"{"access_token":{"xms_cc":{"values":["CP1"]}}}"#;
    let body = reply_json(&token(&fixture(), TENANT, &replaced("claims", claims)));
    assert_eq!(token_claims(text(&body, "access_token"))["xms_cc"], json!(["CP1"]));
    let app = [("client_id", APP), ("client_secret", SECRET), ("claims", claims)];
    let body = reply_json(&fixture().request_token(&app));
    assert_eq!(token_claims(text(&body, "access_token"))["xms_cc"], json!(["CP1"]));
}

#[test]
fn injected_second_factor_has_suberror_and_claims() {
    let reply = (SERVICE.error_reply)(EngineError::TokenService {
        code: 50_076,
        now: start_time(),
        ids: &mut IdGenerator::Random,
    });
    let body = reply_json(&reply);
    assert_eq!((text(&body, "error"), text(&body, "suberror")), ("invalid_grant", "basic_action"));
    let claims: Value = serde_json::from_str(text(&body, "claims")).unwrap();
    assert_eq!(claims["access_token"]["capolids"]["essential"], true);
}

#[test]
fn user_realm_is_managed_for_domains_of_tenants() {
    let probe = fixture();
    let realm = |user: &str| {
        let url = format!("https://{LOGIN}/common/UserRealm/{user}?api-version=1.0");
        reply_json(&probe.get(Ingress::Tunnel, &url, &[]))
    };
    assert_eq!(realm(USER)["account_type"], "Managed");
    assert_eq!(realm(USER)["cloud_instance_name"], "microsoftonline.com");
    assert_eq!(realm("ada@example.com")["account_type"], "Unknown");
}

#[test]
fn user_info_and_logout_answer_as_documented() {
    let probe = fixture();
    let graph = replaced("scope", "https://graph.microsoft.com/.default");
    let token = reply_json(&token(&probe, TENANT, &graph));
    let bearer = format!("Bearer {}", text(&token, "access_token"));
    let url = format!("https://{LOGIN}/common/openid/userinfo");
    let info = reply_json(&probe.get(Ingress::Tunnel, &url, &[("authorization", &bearer)]));
    assert_eq!(info["email"], USER);
    assert_eq!(probe.get(Ingress::Tunnel, &url, &[]).status, StatusCode::UNAUTHORIZED);

    let logout = |target: &str| {
        let url = format!(
            "https://{LOGIN}/common/oauth2/v2.0/logout?client_id={AZURE_CLI}&post_logout_redirect_uri={target}"
        );
        probe.get(Ingress::Tunnel, &url, &[]).status
    };
    assert_eq!(logout("http://localhost:1234"), StatusCode::FOUND);
    assert_eq!(logout("https://example.com"), StatusCode::OK);
}
