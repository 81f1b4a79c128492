//! Trials of identity failures and recovery.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    EncryptingApiServer, KmsPluginKind, KmsPluginOptions, KmsPluginProcess, KmsSuiteFixture,
    expect_that, failed_with_causes, trial,
};

pub(super) fn trials(fixture: &Arc<KmsSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("kms::revoked_permission_is_reported_and_recovers", fixture, revoked_permission),
        trial("kms::deleted_application_is_reported_and_recovers", fixture, deleted_application),
        trial("kms::plugin_waits_for_the_credential_file", fixture, late_credential_file),
        trial("kms::plugin_recovers_from_a_vault_outage", fixture, vault_outage),
    ]
}

const VALUE: &str = "planted-4711-marker";

/// The API server probes a failing plugin every 10 s and a healthy one every 60 s, and its health endpoint
/// every 20 s. The plugin caches a successful status for 10 s.
const HEALTH_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a token error may be cached: 30 s plus a quarter, and the time for the next request.
const TOKEN_ERROR_CACHE_TIME: Duration = Duration::from_secs(40);

/// The number of token errors until each is cached for the longest time: the back-off is 1, 2, 4, 8 and 16 s
/// before.
const TOKEN_ERRORS_UNTIL_MAX_BACKOFF: usize = 6;

/// The shortest duration of those back-offs, if each lasts three quarters of its nominal time.
const MIN_TOKEN_ERROR_BACKOFF: Duration = Duration::from_secs(23);

#[derive(Deserialize)]
struct SeedComponents {
    components: Vec<SeedComponent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeedComponent {
    component: String,
    client_id: String,
}

async fn revoked_permission(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let control = fixture.azure.control_api();
    let plugin = fixture.start_lanyard_plugin("revoked", &fixture.key, "openshift").await?;
    let server = fixture.start_api_server(&[("azure-one", &plugin)]).await?;
    server.write_secret("one", VALUE).await?;
    server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;

    let fault = json!({ "fault": "arm-role", "component": "kms" });
    drop(control.post::<Value>("drills", &fault).await.map_err(failed_with_causes)?);
    let noticed = server.wait_for_kms_readiness(false, HEALTH_TIMEOUT).await;
    let page = plugin.fetch_health_page("/healthz").await;
    let live = plugin.fetch_health_page("/livez").await;
    // The API server still decrypts this Secret from its cache.
    let read = server.expect_secret_value("one", VALUE).await;

    fixture.grant_key_use(&kms_client_id(fixture).await?).await?;
    let message = noticed?;
    expect_that(message.contains("the vault forbids it"), || format!("/readyz: {message}"))?;
    read?;
    let (status, message) = page?;
    expect_that(status == 503, || format!("/healthz returned {status} {message}"))?;
    for part in
        ["failed to encrypt, error: the vault forbids it: 403 ForbiddenByRbac", "Crypto User"]
    {
        expect_that(message.contains(part), || {
            format!("/healthz does not contain {part:?}: {message}")
        })?;
    }
    expect_that(live?.0 == 200, || "/livez fails though the process works".to_owned())?;

    expect_recovery(&server, &plugin).await
}

/// Expects that Secrets are encrypted again, and that the API server reads old and new ones after a restart.
async fn expect_recovery(
    server: &EncryptingApiServer,
    plugin: &KmsPluginProcess,
) -> Result<(), Failed> {
    server.wait_for_kms_readiness(true, HEALTH_TIMEOUT).await?;
    server.write_secret("two", VALUE).await?;
    server.expect_encrypted_in_etcd("two", "azure-one", VALUE).await?;
    server.restart(&[("azure-one", plugin)]).await?;
    server.expect_secret_value("one", VALUE).await?;
    server.expect_secret_value("two", VALUE).await
}

async fn kms_client_id(fixture: &KmsSuiteFixture) -> Result<String, Failed> {
    let seed_data: SeedComponents =
        fixture.azure.control_api().get("state").await.map_err(failed_with_causes)?;
    let kms = seed_data.components.into_iter().find(|it| it.component == "kms");
    Ok(kms.ok_or("the seed data has no component `kms`")?.client_id)
}

/// Makes Entra ID respond as for a deleted application (AADSTS700016), or as before. The fault plan
/// `unknown-application` would delete it permanently.
async fn set_application_deleted(fixture: &KmsSuiteFixture, is_gone: bool) -> Result<(), Failed> {
    let mut rule = json!({
        "name": APPLICATION_RULE, "service": "entra", "client_id": kms_client_id(fixture).await?,
        "effect": { "type": "token-error", "code": 700_016 },
    });
    if !is_gone {
        rule["times"] = json!(0);
    }
    drop(
        fixture
            .azure
            .control_api()
            .post::<Value>("faults", &rule)
            .await
            .map_err(failed_with_causes)?,
    );
    Ok(())
}

const APPLICATION_RULE: &str = "kms-application";

/// The number of token requests that failed because of the deleted application.
async fn count_refused_tokens(fixture: &KmsSuiteFixture) -> Result<usize, Failed> {
    let requests = fixture.azure.control_api().requests_since(0).await;
    let requests = requests.map_err(failed_with_causes)?;
    Ok(requests.iter().filter(|it| it.fault.as_deref() == Some(APPLICATION_RULE)).count())
}

/// A plugin that starts while Entra ID does not know its application has no token. It must report the cause,
/// back off its token requests, and recover without a restart.
async fn deleted_application(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut plugin = fixture.start_lanyard_plugin("unknown", &fixture.key, "openshift").await?;
    let server = fixture.start_api_server(&[("azure-one", &plugin)]).await?;
    server.write_secret("one", VALUE).await?;
    server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;

    plugin.stop().await;
    set_application_deleted(fixture, true).await?;
    let gone = expect_failure_while_deleted(fixture, &mut plugin, &server).await;
    set_application_deleted(fixture, false).await?;
    gone?;

    let clock = SystemClock::new();
    let back = clock.monotonic();
    loop {
        let (status, message) = plugin.fetch_health_page("/healthz").await?;
        let took = clock.monotonic().saturating_sub(back);
        if status == 200 {
            break;
        }
        expect_that(took <= TOKEN_ERROR_CACHE_TIME, || {
            format!("not healthy after {took:?}: {message}")
        })?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    expect_recovery(&server, &plugin).await
}

/// Restarts the plugin and probes it until token errors are cached for the longest time.
async fn expect_failure_while_deleted(
    fixture: &KmsSuiteFixture,
    plugin: &mut KmsPluginProcess,
    server: &EncryptingApiServer,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (count_refused_tokens(fixture).await?, clock.monotonic());
    plugin.restart().await?;
    loop {
        // The first probe may have failed because the plugin was not running yet.
        let message = server.wait_for_kms_readiness(false, HEALTH_TIMEOUT).await?;
        if message.contains("no token for the vault") && message.contains("AADSTS700016") {
            break;
        }
        let took = clock.monotonic().saturating_sub(began);
        expect_that(took <= HEALTH_TIMEOUT, || {
            format!("/readyz does not name the cause: {message}")
        })?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    let took = loop {
        let (status, message) = plugin.fetch_health_page("/healthz").await?;
        expect_that(status == 503, || format!("/healthz returned {status} {message}"))?;
        for part in ["failed to encrypt, error: no token for the vault", "AADSTS700016"] {
            expect_that(message.contains(part), || {
                format!("/healthz does not contain {part:?}: {message}")
            })?;
        }
        let took = clock.monotonic().saturating_sub(began);
        if count_refused_tokens(fixture).await?.saturating_sub(before)
            >= TOKEN_ERRORS_UNTIL_MAX_BACKOFF
        {
            break took;
        }
        expect_that(took < HEALTH_TIMEOUT + TOKEN_ERROR_CACHE_TIME, || {
            format!("too few token requests in {took:?}")
        })?;
        clock.sleep(Duration::from_millis(250)).await;
    };
    expect_that(took >= MIN_TOKEN_ERROR_BACKOFF, || {
        format!("{TOKEN_ERRORS_UNTIL_MAX_BACKOFF} token requests in only {took:?}")
    })?;
    expect_that(plugin.fetch_health_page("/livez").await?.0 == 200, || "/livez fails".to_owned())?;
    server.expect_secret_value("one", VALUE).await
}

/// Starts a plugin without a credential file, then writes an invalid and finally a valid one.
async fn late_credential_file(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let file = fixture.directory.join("late.credential.json");
    let config = json!({ "aadMSIDataPlaneIdentityPath": file });
    let program = KmsPluginKind::Lanyard { layout: "upstream" };
    let options = KmsPluginOptions { name: "late", key: &fixture.key, kind: program };
    let plugin = KmsPluginProcess::start(fixture, options, &config).await?;
    let (status, message) = plugin.fetch_health_page("/healthz").await?;
    let expected = "failed to encrypt, error: no token for the vault";
    expect_that(status == 503 && message.starts_with(expected), || format!("{status} {message}"))?;

    fs::write(&file, "{").map_err(failed_with_causes)?;
    let (status, message) = plugin.fetch_health_page("/healthz").await?;
    expect_that(status == 503 && message.starts_with(expected), || format!("{status} {message}"))?;

    let credential = fixture.fetch_credential().await?;
    fs::write(&file, &credential).map_err(failed_with_causes)?;
    let (status, message) = plugin.fetch_health_page("/healthz").await?;
    expect_that((status, message.as_str()) == (200, "ok"), || format!("{status} {message}"))
}

/// Lets the vault fail with 503. The plugin must report it, back off, and recover.
async fn vault_outage(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let control = fixture.azure.control_api();
    let plugin = fixture.start_lanyard_plugin("outage", &fixture.key, "upstream").await?;
    let rule = json!({
        "name": "kms-outage", "host": fixture.key.host(), "seconds": 600, "times": 12,
        "effect": { "type": "status", "status": 503 },
    });
    drop(control.post::<Value>("faults", &rule).await.map_err(failed_with_causes)?);
    let before = fixture.vault_request_count().await?;
    let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
    request.set_timeout(Duration::from_secs(3));
    let refused = plugin.v2_client().status(request).await;
    let requests = fixture.vault_request_count().await?.saturating_sub(before);
    let message = refused.err().map(|status| status.message().to_owned()).unwrap_or_default();
    expect_that(message.contains("the vault failed: 503"), || format!("the error is {message:?}"))?;
    expect_that((2..=5).contains(&requests), || format!("{requests} requests within 3 s"))?;
    // The plugin calls a failing vault less and less often, at least every 8 s.
    for _ in 0..12 {
        let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
        request.set_timeout(Duration::from_secs(10));
        if plugin.v2_client().status(request).await.is_ok() {
            return Ok(());
        }
    }
    Err("the plugin did not recover".into())
}
