use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tempfile::TempDir;

use super::*;
use crate::scripted::{Bench, Reply, Seen};
use crate::token::error::RetryClass;

const VAULT: &str = "https://vault.azure.net/.default";

struct World {
    bench: Bench,
    folder: TempDir,
}

impl World {
    fn new(service: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let world = Self { bench: Bench::new(service), folder: tempfile::tempdir().unwrap() };
        world.write("first");
        world
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
        let transport = self.bench.transport();
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
    let world = World::new(|_, _| Reply::token("t", 3_600));
    let credential = world.credential();
    assert_eq!(get(&credential).await.unwrap(), "t");
    let seen = world.bench.script.seen(0);
    assert_eq!(seen.url.as_str(), "https://login.example/tenant/oauth2/v2.0/token");
    assert_eq!(seen.field("client_assertion").unwrap(), jwt("first"));
    assert_eq!(seen.field("client_id").unwrap(), "client");
}

#[tokio::test]
async fn a_rotated_file_is_used_by_the_next_exchange() {
    let world = World::new(|_, _| Reply::token("t", 3_600));
    let credential = world.credential();
    get(&credential).await.unwrap();
    world.write("second");
    world.bench.clock.advance(Duration::from_hours(1));
    get(&credential).await.unwrap();
    assert_eq!(world.bench.script.seen(1).field("client_assertion").unwrap(), jwt("second"));
}

#[tokio::test]
async fn a_token_that_is_refused_while_the_file_rotates_is_replaced_at_once() {
    let world = World::new(|_, number| match number {
        0 => Reply::refusal("invalid_client", 700_024).gated(),
        _ => Reply::token("t", 3_600),
    });
    let credential = world.credential();
    let asking = Arc::clone(&credential);
    let asking = tokio::spawn(async move { get(&asking).await });
    while world.bench.script.requests() == 0 {
        tokio::task::yield_now().await;
    }
    world.write("second");
    world.bench.script.release(1);
    assert_eq!(asking.await.unwrap().unwrap(), "t");
    assert_eq!(world.bench.script.seen(1).field("client_assertion").unwrap(), jwt("second"));
}

#[tokio::test]
async fn a_file_that_stays_the_same_is_not_sent_twice() {
    let world = World::new(|_, _| Reply::refusal("invalid_client", 700_213));
    let error = get(&world.credential()).await.unwrap_err();
    assert!(matches!(error, TokenError::Refused(_)));
    assert_eq!(world.bench.script.requests(), 1);
}

#[tokio::test]
async fn a_mismatch_names_what_has_to_match_and_never_the_token() {
    for (error, code) in [
        ("invalid_request", 70_021),
        ("invalid_client", 70_021),
        ("invalid_client", 700_211),
        ("invalid_client", 700_212),
        ("invalid_client", 700_213),
        ("invalid_client", 7_002_138),
    ] {
        let world = World::new(move |_, _| Reply::refusal(error, code));
        let credential = world.credential();
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
async fn a_new_federated_credential_is_given_some_minutes_to_spread() {
    for code in [70_021, 700_211, 700_212, 700_213] {
        let world = World::new(move |_, _| Reply::refusal("invalid_client", code));
        let credential = world.credential();
        let mut classes = Vec::new();
        for _ in 0..12 {
            classes.push(get(&credential).await.unwrap_err().retry_class());
            world.bench.clock.advance(Duration::from_mins(1));
        }
        assert_eq!(classes[..10], [RetryClass::Transient; 10], "{code}");
        assert_eq!(classes[10..], [RetryClass::Denied; 2], "{code}");
    }
}

#[tokio::test]
async fn the_minutes_count_anew_after_a_token() {
    let world = World::new(|_, number| match number {
        1 => Reply::token("t", 3_600),
        _ => Reply::refusal("invalid_client", 700_213),
    });
    let credential = world.credential();
    get(&credential).await.unwrap_err();
    world.bench.clock.advance(Duration::from_mins(20));
    get(&credential).await.unwrap();
    world.bench.clock.advance(Duration::from_hours(1));
    let error = get(&credential).await.unwrap_err();
    assert_eq!(error.retry_class(), RetryClass::Transient);
}

#[tokio::test]
async fn a_credential_that_is_still_spreading_is_asked_for_slowly() {
    let world = World::new(|_, _| Reply::refusal("invalid_client", 700_213));
    let credential = world.credential();
    for _ in 0..600 {
        get(&credential).await.unwrap_err();
        world.bench.clock.advance(Duration::from_secs(1));
    }
    let requests = world.bench.script.requests();
    assert!((20..=25).contains(&requests), "{requests}");
}

#[tokio::test]
async fn other_refusals_are_final_at_once() {
    for (error, code) in [("invalid_client", 7_002_138), ("unauthorized_client", 700_016)] {
        let world = World::new(move |_, _| Reply::refusal(error, code));
        let error = get(&world.credential()).await.unwrap_err();
        assert_eq!(error.retry_class(), RetryClass::Denied, "{code}");
    }
}

#[tokio::test]
async fn a_missing_file_is_named_with_its_variable() {
    let world = World::new(|_, _| Reply::token("t", 3_600));
    fs::remove_file(world.path()).unwrap();
    let credential = world.credential();
    let error = get(&credential).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(world.path().to_str().unwrap()), "{text}");
    assert!(text.contains("AZURE_FEDERATED_TOKEN_FILE"), "{text}");
    assert!(error.hint().unwrap().contains("azure.workload.identity/use"));
    world.write("late");
    world.bench.clock.advance(Duration::from_secs(2));
    assert_eq!(get(&credential).await.unwrap(), "t");
}

#[tokio::test]
async fn a_file_without_a_token_is_refused_before_it_is_sent() {
    let world = World::new(|_, _| Reply::token("t", 3_600));
    fs::write(world.path(), "planted-marker").unwrap();
    let error = get(&world.credential()).await.unwrap_err();
    assert!(error.to_string().ends_with("does not hold a JWT"), "{error}");
    assert!(!format!("{error:?}").contains("planted-marker"));
    assert_eq!(world.bench.script.requests(), 0);
}

#[test]
fn every_setting_that_is_wrong_is_named_at_once() {
    let world = World::new(|_, _| Reply::token("t", 3_600));
    let refuse = |settings| {
        let transport = world.bench.transport();
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
        ..world.settings()
    });
    assert_eq!(wrong.problems.len(), 2, "{wrong}");
}

#[test]
fn without_an_authority_the_public_cloud_is_asked() {
    let settings = FederatedTokenSettings {
        authority_host: None,
        ..World::new(|_, _| Reply::Broken).settings()
    };
    let identity = FederatedIdentity::parse(settings).unwrap();
    assert_eq!(identity.authority.as_url().as_str(), "https://login.microsoftonline.com/");
}
