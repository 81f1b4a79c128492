use super::*;
use crate::scripted_service::{ScriptedReply, TokenServiceFixture};
use crate::token::request::TokenRequestContext;
use azure_core::credentials::{TokenCredential as _, TokenRequestOptions};

const VAULT: &str = "https://vault.azure.net/.default";

fn credential(
    bench: &TokenServiceFixture,
    settings: ManagedIdentitySettings,
) -> Arc<ManagedIdentityCredential> {
    let options = bench.options();
    let transport = options.client.transport.clone().unwrap();
    let transport = ManagedIdentityTransport::with_http_transport(options, transport);
    ManagedIdentityCredential::with_shared_transport(settings, &transport).unwrap()
}

fn imds(bench: &TokenServiceFixture) -> Arc<ManagedIdentityCredential> {
    credential(bench, ManagedIdentitySettings::default())
}

fn app_service() -> ManagedIdentitySettings {
    ManagedIdentitySettings {
        identity_endpoint: Some("http://127.0.0.1:41/msi/token".to_owned()),
        identity_header: Some("planted-header-marker".into()),
        ..ManagedIdentitySettings::default()
    }
}

async fn failure(
    bench: &TokenServiceFixture,
    credential: &ManagedIdentityCredential,
) -> TokenError {
    let error = bench.run_to_completion(credential.get_token(&[VAULT], None)).await.unwrap_err();
    TokenError::of(&error).unwrap().clone()
}

#[tokio::test]
async fn imds_is_asked_for_the_resource_and_its_quoted_numbers_are_read() {
    let body = r#"{"access_token":"t","client_id":"c","expires_in":"86399","expires_on":"1795348799","ext_expires_in":"86399","not_before":"1795262100","resource":"https://vault.azure.net","token_type":"Bearer"}"#;
    let bench = TokenServiceFixture::new(move |_, _| ScriptedReply::status(200, body));
    let token = imds(&bench).get_token(&[VAULT], None).await.unwrap();
    assert_eq!(token.token.secret(), "t");
    assert_eq!(token.expires_on.unix_timestamp(), 1_795_262_400 + 86_399);
    let observed = bench.script.request(0);
    assert_eq!(observed.headers.get_optional_str(&"metadata".into()), Some("true"));
    assert_eq!(
        observed.url.as_str(),
        "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net"
    );
}

#[tokio::test]
async fn app_service_answers_with_expires_on_alone() {
    let body = r#"{"access_token":"t","expires_on":"1795266000","resource":"r","token_type":"Bearer","client_id":"c"}"#;
    let bench = TokenServiceFixture::new(move |_, _| ScriptedReply::status(200, body));
    let token = credential(&bench, app_service()).get_token(&[VAULT], None).await.unwrap();
    assert_eq!(token.expires_on.unix_timestamp(), 1_795_266_000);
    let observed = bench.script.request(0);
    let header = observed.headers.get_optional_str(&"x-identity-header".into());
    assert_eq!(header, Some("planted-header-marker"));
    assert!(
        observed.url.as_str().starts_with("http://127.0.0.1:41/msi/token?api-version=2019-08-01&")
    );
}

#[tokio::test]
async fn endpoint_update_is_outlasted_by_retries() {
    for last_error in [404, 410, 429, 500, 503] {
        let bench = TokenServiceFixture::new(move |_, number| match number {
            0..6 => ScriptedReply::status(last_error, "updating"),
            _ => ScriptedReply::token("t", 3_600),
        });
        let credential = imds(&bench);
        let asking = credential.get_token(&[VAULT], None);
        let (outcome, took) = bench.run_and_measure(asking).await;
        assert_eq!(outcome.unwrap().token.secret(), "t", "{last_error}");
        assert_eq!(took, Duration::from_secs(1 + 2 + 4 + 8 + 16 + 20), "{last_error}");
    }
}

#[tokio::test]
async fn errors_have_hints() {
    for (status, body, requests, hint) in [
        (
            400,
            r#"{"error":"invalid_request","error_description":"Identity not found"}"#,
            1,
            "not assigned",
        ),
        (
            400,
            r#"{"error":"invalid_request","error_description":"Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request"}"#,
            1,
            "name one of the identities by its client id",
        ),
        (
            400,
            r#"{"error":"invalid_request","error_description":"The moon is full."}"#,
            1,
            "for which lanyard has no advice; the service says: The moon is full",
        ),
        (
            400,
            r#"{"error":"unauthorized_client","error_description":"AADSTS700016: Application was not found."}"#,
            1,
            "this tenant has no such application",
        ),
        (403, "A socket operation was attempted to an unreachable network", 1, "Docker Desktop"),
        (403, "<html>blocked</html>", 1, "AZURE_POD_IDENTITY_AUTHORITY_HOST"),
        (404, "", 9, "being updated"),
    ] {
        let bench = TokenServiceFixture::new(move |_, _| ScriptedReply::status(status, body));
        let error = failure(&bench, &imds(&bench)).await;
        let TokenError::ManagedIdentity(rejection) = &error else { panic!("{error:?}") };
        assert_eq!(rejection.status(), status);
        assert_eq!(rejection.is_unassigned(), hint == "not assigned", "{status}");
        assert!(error.hint().unwrap().contains(hint), "{status}: {:?}", error.hint());
        assert_eq!(bench.script.request_count(), requests, "{status}");
    }
}

#[tokio::test]
async fn identity_header_never_appears_in_output() {
    let echo = "you sent x-identity-header: planted-header-marker";
    let bench = TokenServiceFixture::new(move |_, _| ScriptedReply::status(400, echo));
    let credential = credential(&bench, app_service());
    let error = bench.run_to_completion(credential.get_token(&[VAULT], None)).await.unwrap_err();
    let printed = format!("{error} {error:?} {credential:?} {:?}", credential.health());
    assert!(!printed.contains("planted"), "{printed}");
    let inner = error.downcast_ref::<azure_core::Error>().unwrap();
    assert!(!format!("{inner} {inner:?}").contains("planted"));
}

#[tokio::test]
async fn unsupported_request_options_are_rejected() {
    let bench = TokenServiceFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let credential = imds(&bench);
    for context in [
        TokenRequestContext::new().for_tenant("other".parse().unwrap()),
        TokenRequestContext::new().with_claims("{}").unwrap(),
        TokenRequestContext::new().with_continuous_access_evaluation(),
    ] {
        let mut options = TokenRequestOptions::default();
        options.method_options.context.insert(context);
        let error = credential.get_token(&[VAULT], Some(options)).await.unwrap_err();
        assert!(matches!(TokenError::of(&error), Some(TokenError::Unsupported { .. })));
    }
    assert_eq!(bench.script.request_count(), 0);
}

#[test]
fn contradictory_settings_are_rejected() {
    let url = |text: &str| Some(text.to_owned());
    let half = ManagedIdentitySettings { identity_header: None, ..app_service() };
    let error = resolve_endpoint(half).unwrap_err();
    assert_eq!(error.to_string(), "IDENTITY_HEADER is not set, but IDENTITY_ENDPOINT is");
    for host in ["169.254.169.254", "ftp://host", "not a url", "unix:/run/imds"] {
        let settings =
            ManagedIdentitySettings { imds_host: url(host), ..ManagedIdentitySettings::default() };
        assert!(resolve_endpoint(settings).is_err(), "{host}");
    }
    let empty =
        ManagedIdentitySettings { imds_host: url(""), ..ManagedIdentitySettings::default() };
    assert_eq!(resolve_endpoint(empty).unwrap().url().host_str(), Some("169.254.169.254"));
}

#[test]
fn unsupported_hosts_are_rejected_by_name() {
    let set = Some("x".to_owned());
    let arc = ManagedIdentitySettings {
        identity_header: None,
        imds_endpoint: set.clone(),
        ..app_service()
    };
    let fabric =
        ManagedIdentitySettings { identity_server_thumbprint: set.clone(), ..app_service() };
    for (settings, text) in [
        (arc, "IMDS_ENDPOINT is set: the managed identity of azure arc is not supported"),
        (
            fabric,
            "IDENTITY_SERVER_THUMBPRINT is set: the managed identity of service fabric is not supported",
        ),
    ] {
        let error = resolve_endpoint(settings).unwrap_err();
        assert_eq!(error.to_string(), text);
        assert!(error.hint().unwrap().contains("workload identity"));
    }
    // Neither variable has a meaning without its endpoint.
    let stray = ManagedIdentitySettings {
        identity_server_thumbprint: set.clone(),
        imds_endpoint: set,
        ..ManagedIdentitySettings::default()
    };
    assert_eq!(resolve_endpoint(stray).unwrap().url().host_str(), Some("169.254.169.254"));
}

#[tokio::test]
async fn default_http_client_reaches_a_loopback_imds() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4_096];
        let length = stream.read(&mut request).await.unwrap();
        let body = r#"{"access_token":"t","expires_in":"3600"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let settings =
        ManagedIdentitySettings { imds_host: Some(host), ..ManagedIdentitySettings::default() };
    let credential =
        ManagedIdentityCredential::new(settings, TokenTransportOptions::default()).unwrap();
    let token = credential.get_token(&[VAULT], None).await.unwrap();
    assert_eq!(token.token.secret(), "t");
    // The origin form: a proxy would have received the absolute form.
    let request = service.await.unwrap();
    assert!(request.starts_with("GET /metadata/identity/oauth2/token?"), "{request}");
}
