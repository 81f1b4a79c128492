//! The identity goes and comes back.

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

pub(super) fn trials(stage: &Arc<KmsSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("kms::revoked_permission_is_reported_and_recovers", stage, revoked_permission),
        trial("kms::deleted_application_is_reported_and_recovers", stage, deleted_application),
        trial("kms::plugin_waits_for_the_credential_file", stage, late_credential_file),
        trial("kms::plugin_recovers_from_a_vault_outage", stage, vault_outage),
    ]
}

const VALUE: &str = "planted-4711-marker";

/// The API server looks every 10 s at a plugin that fails, and our good answer counts for as long;
/// one that it believes to be good it asks every 60 s, and its health page every 20 s.
const HEALTH_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a token that was refused may answer for everybody who asks: 30 s and a quarter of that,
/// and the time to ask anew.
const TOKEN_ERROR_CACHE_TIME: Duration = Duration::from_secs(40);

/// The refusals of a token after which each is remembered for the longest time: after 1, 2, 4, 8 and
/// 16 s.
const TOKEN_ERRORS_UNTIL_MAX_BACKOFF: usize = 6;

/// The least that those take, where each is remembered for three quarters of its time.
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

async fn revoked_permission(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let control = stage.azure.control_api();
    let plugin = stage.start_lanyard_plugin("revoked", &stage.key, "openshift").await?;
    let server = stage.start_api_server(&[("azure-one", &plugin)]).await?;
    server.write_secret("one", VALUE).await?;
    server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;

    let drill = json!({ "fault": "arm-role", "component": "kms" });
    drop(control.post::<Value>("drills", &drill).await.map_err(failed_with_causes)?);
    let noticed = server.wait_for_kms_readiness(false, HEALTH_TIMEOUT).await;
    let page = plugin.fetch_health_page("/healthz").await;
    let live = plugin.fetch_health_page("/livez").await;
    // What was decrypted before is served on.
    let read = server.expect_secret_value("one", VALUE).await;

    stage.grant_key_use(&kms_client_id(stage).await?).await?;
    let told = noticed?;
    expect_that(told.contains("the vault forbids it"), || format!("the API server says {told}"))?;
    read?;
    let (status, told) = page?;
    expect_that(status == 503, || format!("/healthz says {status} {told}"))?;
    for part in
        ["failed to encrypt, error: the vault forbids it: 403 ForbiddenByRbac", "Crypto User"]
    {
        expect_that(told.contains(part), || format!("/healthz does not say {part:?}: {told}"))?;
    }
    expect_that(live?.0 == 200, || "/livez fails though the process works".to_owned())?;

    server.wait_for_kms_readiness(true, HEALTH_TIMEOUT).await?;
    server.write_secret("two", VALUE).await?;
    server.expect_encrypted_in_etcd("two", "azure-one", VALUE).await?;
    server.restart(&[("azure-one", &plugin)]).await?;
    server.expect_secret_value("one", VALUE).await?;
    server.expect_secret_value("two", VALUE).await
}

async fn kms_client_id(stage: &KmsSuiteFixture) -> Result<String, Failed> {
    let world: SeedComponents =
        stage.azure.control_api().get("world").await.map_err(failed_with_causes)?;
    let kms = world.components.into_iter().find(|it| it.component == "kms");
    Ok(kms.ok_or("the world has no kms")?.client_id)
}

/// Lets Entra say of the application what it says of one that is deleted (AADSTS700016), or know it
/// again. The drill `unknown-application` deletes it for good.
async fn set_application_deleted(stage: &KmsSuiteFixture, is_gone: bool) -> Result<(), Failed> {
    let mut rule = json!({
        "name": APPLICATION_RULE, "service": "entra", "client_id": kms_client_id(stage).await?,
        "effect": { "type": "token-error", "code": 700_016 },
    });
    if !is_gone {
        rule["times"] = json!(0);
    }
    drop(
        stage
            .azure
            .control_api()
            .post::<Value>("faults", &rule)
            .await
            .map_err(failed_with_causes)?,
    );
    Ok(())
}

const APPLICATION_RULE: &str = "kms-application";

/// How many tokens were refused for the application that is gone.
async fn count_refused_tokens(stage: &KmsSuiteFixture) -> Result<usize, Failed> {
    #[derive(Deserialize)]
    struct FaultRequestLog {
        value: Vec<Value>,
    }
    let ledger: FaultRequestLog =
        stage.azure.control_api().get("ledger").await.map_err(failed_with_causes)?;
    Ok(ledger.value.iter().filter(|entry| entry["fault"] == APPLICATION_RULE).count())
}

/// An instance that starts while Entra does not know the application has no token to live on. It
/// says so, asks Entra seldom, and is back by itself.
async fn deleted_application(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut plugin = stage.start_lanyard_plugin("unknown", &stage.key, "openshift").await?;
    let server = stage.start_api_server(&[("azure-one", &plugin)]).await?;
    server.write_secret("one", VALUE).await?;
    server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;

    plugin.stop().await;
    set_application_deleted(stage, true).await?;
    let gone = expect_failure_while_deleted(stage, &mut plugin, &server).await;
    set_application_deleted(stage, false).await?;
    gone?;

    let clock = SystemClock::new();
    let back = clock.monotonic();
    loop {
        let (status, told) = plugin.fetch_health_page("/healthz").await?;
        let took = clock.monotonic().saturating_sub(back);
        if status == 200 {
            break;
        }
        expect_that(took <= TOKEN_ERROR_CACHE_TIME, || format!("not back after {took:?}: {told}"))?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    server.wait_for_kms_readiness(true, HEALTH_TIMEOUT).await?;
    server.write_secret("two", VALUE).await?;
    server.expect_encrypted_in_etcd("two", "azure-one", VALUE).await?;
    server.restart(&[("azure-one", &plugin)]).await?;
    server.expect_secret_value("one", VALUE).await?;
    server.expect_secret_value("two", VALUE).await
}

/// Starts the plugin anew, and asks it until each refusal is remembered for the longest time.
async fn expect_failure_while_deleted(
    stage: &KmsSuiteFixture,
    plugin: &mut KmsPluginProcess,
    server: &EncryptingApiServer,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (count_refused_tokens(stage).await?, clock.monotonic());
    plugin.restart().await?;
    loop {
        // It may have met no plugin at all at first.
        let told = server.wait_for_kms_readiness(false, HEALTH_TIMEOUT).await?;
        if told.contains("no token for the vault") && told.contains("AADSTS700016") {
            break;
        }
        let took = clock.monotonic().saturating_sub(began);
        expect_that(took <= HEALTH_TIMEOUT, || format!("the API server does not say why: {told}"))?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    let took = loop {
        let (status, told) = plugin.fetch_health_page("/healthz").await?;
        expect_that(status == 503, || format!("/healthz says {status} {told}"))?;
        for part in ["failed to encrypt, error: no token for the vault", "AADSTS700016"] {
            expect_that(told.contains(part), || format!("/healthz does not say {part:?}: {told}"))?;
        }
        let took = clock.monotonic().saturating_sub(began);
        if count_refused_tokens(stage).await?.saturating_sub(before)
            >= TOKEN_ERRORS_UNTIL_MAX_BACKOFF
        {
            break took;
        }
        expect_that(took < HEALTH_TIMEOUT + TOKEN_ERROR_CACHE_TIME, || {
            format!("Entra was asked too seldom in {took:?}")
        })?;
        clock.sleep(Duration::from_millis(250)).await;
    };
    expect_that(took >= MIN_TOKEN_ERROR_BACKOFF, || {
        format!("Entra was asked {TOKEN_ERRORS_UNTIL_MAX_BACKOFF} times in {took:?}")
    })?;
    expect_that(plugin.fetch_health_page("/livez").await?.0 == 200, || "/livez fails".to_owned())?;
    server.expect_secret_value("one", VALUE).await
}

/// A plugin whose credential file is not there, is broken, and is good at last.
async fn late_credential_file(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let file = stage.directory.join("late.credential.json");
    let config = json!({ "aadMSIDataPlaneIdentityPath": file });
    let program = KmsPluginKind::Lanyard { layout: "upstream" };
    let made = KmsPluginOptions { name: "late", key: &stage.key, kind: program };
    let plugin = KmsPluginProcess::start(stage, made, &config).await?;
    let (status, told) = plugin.fetch_health_page("/healthz").await?;
    let expected = "failed to encrypt, error: no token for the vault";
    expect_that(status == 503 && told.starts_with(expected), || format!("{status} {told}"))?;

    fs::write(&file, "{").map_err(failed_with_causes)?;
    let (status, told) = plugin.fetch_health_page("/healthz").await?;
    expect_that(status == 503 && told.starts_with(expected), || format!("{status} {told}"))?;

    let credential = stage.fetch_credential().await?;
    fs::write(&file, &credential).map_err(failed_with_causes)?;
    let (status, told) = plugin.fetch_health_page("/healthz").await?;
    expect_that((status, told.as_str()) == (200, "ok"), || format!("{status} {told}"))
}

/// The vault fails: the plugin says so, asks no more than it may, and is back.
async fn vault_outage(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let control = stage.azure.control_api();
    let plugin = stage.start_lanyard_plugin("outage", &stage.key, "upstream").await?;
    let rule = json!({
        "name": "kms-outage", "host": stage.key.host(), "seconds": 600, "times": 12,
        "effect": { "type": "status", "status": 503 },
    });
    drop(control.post::<Value>("faults", &rule).await.map_err(failed_with_causes)?);
    let before = stage.vault_request_count().await?;
    let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
    request.set_timeout(Duration::from_secs(3));
    let refused = plugin.v2_client().status(request).await;
    let asked = stage.vault_request_count().await?.saturating_sub(before);
    let told = refused.err().map(|status| status.message().to_owned()).unwrap_or_default();
    expect_that(told.contains("the vault failed: 503"), || format!("refused with {told:?}"))?;
    expect_that((2..=5).contains(&asked), || format!("{asked} requests within 3 s"))?;
    // A vault that fails again and again is asked ever less, every 8 s at least.
    for _ in 0..12 {
        let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
        request.set_timeout(Duration::from_secs(10));
        if plugin.v2_client().status(request).await.is_ok() {
            return Ok(());
        }
    }
    Err("the plugin does not come back".into())
}
