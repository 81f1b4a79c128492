use azure_core::credentials::TokenCredential as _;
use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tempfile::TempDir;

use super::*;
use crate::scripted_service::{RecordedRequest, ScriptedReply, TokenServiceFixture};
use lanyard_clock::RetryClass;

const VAULT: &str = "https://vault.azure.net/.default";

struct FederatedTokenFixture {
    token_service: TokenServiceFixture,
    folder: TempDir,
}

impl FederatedTokenFixture {
    fn new(
        service: impl Fn(&RecordedRequest, usize) -> ScriptedReply + Send + Sync + 'static,
    ) -> Self {
        let fixture = Self {
            token_service: TokenServiceFixture::new(service),
            folder: tempfile::tempdir().unwrap(),
        };
        fixture.write("first");
        fixture
    }

    fn write(&self, subject: &str) {
        fs::write(self.path(), jwt(subject)).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn settings(&self) -> FederatedTokenSettings {
        FederatedTokenSettings {
            client_id: Some("client".to_owned()),
            tenant_id: Some("tenant".to_owned()),
            token_file: Some(self.path()),
            authority_host: Some("https://login.example".to_owned()),
        }
    }

    fn credential(&self) -> Arc<FederatedTokenCredential> {
        let transport = self.token_service.transport();
        FederatedTokenCredential::from_settings(self.settings(), transport).unwrap()
    }
}

fn jwt(subject: &str) -> String {
    let payload = format!(
        r#"{{"iss":"https://oidc.example/","sub":"{subject}","aud":["api://AzureADTokenExchange"],"exp":1795266000}}"#
    );
    format!("e30.{}.cGxhbnRlZC1tYXJrZXI", URL_SAFE_NO_PAD.encode(payload))
}

async fn get(credential: &FederatedTokenCredential) -> Result<String, TokenError> {
    match credential.get_token(&[VAULT], None).await {
        Ok(token) => Ok(token.token.secret().to_owned()),
        Err(error) => Err(TokenError::of(&error).unwrap().clone()),
    }
}

#[tokio::test]
async fn the_token_in_the_file_is_exchanged() {
    let fixture = FederatedTokenFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let credential = fixture.credential();
    assert_eq!(get(&credential).await.unwrap(), "t");
    let observed = fixture.token_service.script.request(0);
    assert_eq!(observed.url.as_str(), "https://login.example/tenant/oauth2/v2.0/token");
    assert_eq!(observed.form_field("client_assertion").unwrap(), jwt("first"));
    assert_eq!(observed.form_field("client_id").unwrap(), "client");
}

#[tokio::test]
async fn a_rotated_file_is_used_by_the_next_exchange() {
    let fixture = FederatedTokenFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let credential = fixture.credential();
    get(&credential).await.unwrap();
    fixture.write("second");
    fixture.token_service.clock.advance(Duration::from_hours(1));
    get(&credential).await.unwrap();
    assert_eq!(
        fixture.token_service.script.request(1).form_field("client_assertion").unwrap(),
        jwt("second")
    );
}

#[tokio::test]
async fn rejected_token_is_reread_when_the_file_rotated_meanwhile() {
    let fixture = FederatedTokenFixture::new(|_, number| match number {
        0 => ScriptedReply::error("invalid_client", 700_024).gated(),
        _ => ScriptedReply::token("t", 3_600),
    });
    let credential = fixture.credential();
    let asking = Arc::clone(&credential);
    let asking = tokio::spawn(async move { get(&asking).await });
    while fixture.token_service.script.request_count() == 0 {
        tokio::task::yield_now().await;
    }
    fixture.write("second");
    fixture.token_service.script.release(1);
    assert_eq!(asking.await.unwrap().unwrap(), "t");
    assert_eq!(
        fixture.token_service.script.request(1).form_field("client_assertion").unwrap(),
        jwt("second")
    );
}

#[tokio::test]
async fn unchanged_rejected_token_is_not_sent_twice() {
    let fixture =
        FederatedTokenFixture::new(|_, _| ScriptedReply::error("invalid_client", 700_213));
    let error = get(&fixture.credential()).await.unwrap_err();
    assert!(matches!(error, TokenError::Refused(_)));
    assert_eq!(fixture.token_service.script.request_count(), 1);
}

#[tokio::test]
async fn mismatch_hint_names_claims_but_never_the_token() {
    for (error, code) in [
        ("invalid_request", 70_021),
        ("invalid_client", 70_021),
        ("invalid_client", 700_211),
        ("invalid_client", 700_212),
        ("invalid_client", 700_213),
        ("invalid_client", 7_002_138),
    ] {
        let fixture = FederatedTokenFixture::new(move |_, _| ScriptedReply::error(error, code));
        let credential = fixture.credential();
        let error = credential.get_token(&[VAULT], None).await.unwrap_err();
        let hint = TokenError::of(&error).unwrap().hint().unwrap();
        for part in ["iss=\"https://oidc.example/\"", "sub=\"first\"", "api://AzureADTokenExchange"]
        {
            assert!(hint.contains(part), "{code}: {hint}");
        }
        let printed = format!("{error} {error:?} {hint} {credential:?} {:?}", credential.health());
        assert!(!printed.contains("cGxhbnRlZC1tYXJrZXI"), "{printed}");
    }
}

#[tokio::test]
async fn unmatched_credential_is_transient_during_propagation() {
    for code in [70_021, 700_211, 700_212, 700_213] {
        let fixture =
            FederatedTokenFixture::new(move |_, _| ScriptedReply::error("invalid_client", code));
        let credential = fixture.credential();
        let mut classes = Vec::new();
        for _ in 0..12 {
            classes.push(get(&credential).await.unwrap_err().retry_class());
            fixture.token_service.clock.advance(Duration::from_mins(1));
        }
        assert_eq!(classes[..10], [RetryClass::Transient; 10], "{code}");
        assert_eq!(classes[10..], [RetryClass::Denied; 2], "{code}");
    }
}

#[tokio::test]
async fn propagation_window_restarts_after_a_token() {
    let fixture = FederatedTokenFixture::new(|_, number| match number {
        1 => ScriptedReply::token("t", 3_600),
        _ => ScriptedReply::error("invalid_client", 700_213),
    });
    let credential = fixture.credential();
    get(&credential).await.unwrap_err();
    fixture.token_service.clock.advance(Duration::from_mins(20));
    get(&credential).await.unwrap();
    fixture.token_service.clock.advance(Duration::from_hours(1));
    let error = get(&credential).await.unwrap_err();
    assert_eq!(error.retry_class(), RetryClass::Transient);
}

#[tokio::test]
async fn propagating_credential_is_retried_slowly() {
    let fixture =
        FederatedTokenFixture::new(|_, _| ScriptedReply::error("invalid_client", 700_213));
    let credential = fixture.credential();
    for _ in 0..600 {
        get(&credential).await.unwrap_err();
        fixture.token_service.clock.advance(Duration::from_secs(1));
    }
    let requests = fixture.token_service.script.request_count();
    assert!((20..=25).contains(&requests), "{requests}");
}

#[tokio::test]
async fn other_entra_errors_are_denied_immediately() {
    for (error, code) in [("invalid_client", 7_002_138), ("unauthorized_client", 700_016)] {
        let fixture = FederatedTokenFixture::new(move |_, _| ScriptedReply::error(error, code));
        let error = get(&fixture.credential()).await.unwrap_err();
        assert_eq!(error.retry_class(), RetryClass::Denied, "{code}");
    }
}

#[tokio::test]
async fn a_missing_file_is_named_with_its_variable() {
    let fixture = FederatedTokenFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    fs::remove_file(fixture.path()).unwrap();
    let credential = fixture.credential();
    let error = get(&credential).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(fixture.path().to_str().unwrap()), "{text}");
    assert!(text.contains("AZURE_FEDERATED_TOKEN_FILE"), "{text}");
    assert!(error.hint().unwrap().contains("azure.workload.identity/use"));
    fixture.write("late");
    fixture.token_service.clock.advance(Duration::from_secs(2));
    assert_eq!(get(&credential).await.unwrap(), "t");
}

#[tokio::test]
async fn a_file_without_a_token_is_refused_before_it_is_sent() {
    let fixture = FederatedTokenFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    fs::write(fixture.path(), "planted-marker").unwrap();
    let error = get(&fixture.credential()).await.unwrap_err();
    assert!(error.to_string().ends_with("does not hold a JWT"), "{error}");
    assert!(!format!("{error:?}").contains("planted-marker"));
    assert_eq!(fixture.token_service.script.request_count(), 0);
}

#[test]
fn all_invalid_settings_are_reported_together() {
    let fixture = FederatedTokenFixture::new(|_, _| ScriptedReply::token("t", 3_600));
    let refuse = |settings| {
        let transport = fixture.token_service.transport();
        FederatedTokenCredential::from_settings(settings, transport).unwrap_err()
    };
    let empty = refuse(FederatedTokenSettings::default());
    assert_eq!(
        empty.to_string(),
        "workload identity is not configured: AZURE_CLIENT_ID is not set, AZURE_TENANT_ID is not \
         set, AZURE_FEDERATED_TOKEN_FILE is not set"
    );
    let wrong = refuse(FederatedTokenSettings {
        tenant_id: Some("a/b".to_owned()),
        authority_host: Some("http://login.example".to_owned()),
        ..fixture.settings()
    });
    assert_eq!(wrong.problems.len(), 2, "{wrong}");
}

#[test]
fn missing_authority_defaults_to_the_public_cloud() {
    let settings = FederatedTokenSettings {
        authority_host: None,
        ..FederatedTokenFixture::new(|_, _| ScriptedReply::ConnectionReset).settings()
    };
    let identity = ResolvedFederatedSettings::parse(settings).unwrap();
    assert_eq!(identity.authority.as_url().as_str(), "https://login.microsoftonline.com/");
}
