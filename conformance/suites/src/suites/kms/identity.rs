//! The identity goes and comes back.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ApiServer, Instance, Made, Program, Stage, chain, expect, trial};

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("kms:a-right-that-is-taken-away-and-given-back", stage, revoked),
        trial("kms:an-application-that-is-gone-and-comes-back", stage, unknown),
        trial("kms:a-credential-file-that-comes-late", stage, late),
        trial("kms:a-vault-that-fails-for-a-while", stage, outage),
    ]
}

const VALUE: &str = "planted-4711-marker";

/// The API server looks every 10 s at a plugin that fails, and our good answer counts for as long;
/// one that it believes to be good it asks every 60 s, and its health page every 20 s.
const NOTICED: Duration = Duration::from_mins(1);

/// How long a token that was refused may answer for everybody who asks: 30 s and a quarter of that,
/// and the time to ask anew.
const REMEMBERED: Duration = Duration::from_secs(40);

/// The refusals of a token after which each is remembered for the longest time: after 1, 2, 4, 8 and
/// 16 s.
const REFUSALS: usize = 6;

/// The least that those take, where each is remembered for three quarters of its time.
const SPREAD: Duration = Duration::from_secs(23);

#[derive(Deserialize)]
struct World {
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Component {
    component: String,
    client_id: String,
}

async fn revoked(stage: &Stage) -> Result<(), Failed> {
    let control = stage.azure.control();
    let plugin = stage.ours("revoked", &stage.key, "openshift").await?;
    let server = stage.api_server(&[("azure-one", &plugin)]).await?;
    server.write("one", VALUE).await?;
    server.await_ready(true, Duration::from_secs(5)).await?;

    let drill = json!({ "fault": "arm-role", "component": "kms" });
    drop(control.write::<Value>("drills", &drill).await.map_err(chain)?);
    let noticed = server.await_ready(false, NOTICED).await;
    let page = plugin.page("/healthz").await;
    let live = plugin.page("/livez").await;
    // What was decrypted before is served on.
    let read = server.expect_read("one", VALUE).await;

    stage.grant(&client_of_kms(stage).await?).await?;
    let told = noticed?;
    expect(told.contains("the vault forbids it"), || format!("the API server says {told}"))?;
    read?;
    let (status, told) = page?;
    expect(status == 503, || format!("/healthz says {status} {told}"))?;
    for part in
        ["failed to encrypt, error: the vault forbids it: 403 ForbiddenByRbac", "Crypto User"]
    {
        expect(told.contains(part), || format!("/healthz does not say {part:?}: {told}"))?;
    }
    expect(live?.0 == 200, || "/livez fails though the process works".to_owned())?;

    server.await_ready(true, NOTICED).await?;
    server.write("two", VALUE).await?;
    server.expect_stored("two", "azure-one", VALUE).await?;
    server.restart(&[("azure-one", &plugin)]).await?;
    server.expect_read("one", VALUE).await?;
    server.expect_read("two", VALUE).await
}

async fn client_of_kms(stage: &Stage) -> Result<String, Failed> {
    let world: World = stage.azure.control().read("world").await.map_err(chain)?;
    let kms = world.components.into_iter().find(|it| it.component == "kms");
    Ok(kms.ok_or("the world has no kms")?.client_id)
}

/// Lets Entra say of the application what it says of one that is deleted (AADSTS700016), or know it
/// again. The drill `unknown-application` deletes it for good.
async fn set_gone(stage: &Stage, is_gone: bool) -> Result<(), Failed> {
    let mut rule = json!({
        "name": APPLICATION_RULE, "service": "entra", "client_id": client_of_kms(stage).await?,
        "effect": { "type": "token-error", "code": 700_016 },
    });
    if !is_gone {
        rule["times"] = json!(0);
    }
    drop(stage.azure.control().write::<Value>("faults", &rule).await.map_err(chain)?);
    Ok(())
}

const APPLICATION_RULE: &str = "kms-application";

/// How many tokens were refused for the application that is gone.
async fn refusals(stage: &Stage) -> Result<usize, Failed> {
    #[derive(Deserialize)]
    struct Ledger {
        value: Vec<Value>,
    }
    let ledger: Ledger = stage.azure.control().read("ledger").await.map_err(chain)?;
    Ok(ledger.value.iter().filter(|entry| entry["fault"] == APPLICATION_RULE).count())
}

/// An instance that starts while Entra does not know the application has no token to live on. It
/// says so, asks Entra seldom, and is back by itself.
async fn unknown(stage: &Stage) -> Result<(), Failed> {
    let mut plugin = stage.ours("unknown", &stage.key, "openshift").await?;
    let server = stage.api_server(&[("azure-one", &plugin)]).await?;
    server.write("one", VALUE).await?;
    server.await_ready(true, Duration::from_secs(5)).await?;

    plugin.end().await;
    set_gone(stage, true).await?;
    let gone = while_gone(stage, &mut plugin, &server).await;
    set_gone(stage, false).await?;
    gone?;

    let clock = SystemClock::new();
    let back = clock.monotonic();
    loop {
        let (status, told) = plugin.page("/healthz").await?;
        let took = clock.monotonic().saturating_sub(back);
        if status == 200 {
            break;
        }
        expect(took <= REMEMBERED, || format!("not back after {took:?}: {told}"))?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    server.await_ready(true, NOTICED).await?;
    server.write("two", VALUE).await?;
    server.expect_stored("two", "azure-one", VALUE).await?;
    server.restart(&[("azure-one", &plugin)]).await?;
    server.expect_read("one", VALUE).await?;
    server.expect_read("two", VALUE).await
}

/// Starts the plugin anew, and asks it until each refusal is remembered for the longest time.
async fn while_gone(
    stage: &Stage,
    plugin: &mut Instance,
    server: &ApiServer,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (refusals(stage).await?, clock.monotonic());
    plugin.start_again().await?;
    loop {
        // It may have met no plugin at all at first.
        let told = server.await_ready(false, NOTICED).await?;
        if told.contains("no token for the vault") && told.contains("AADSTS700016") {
            break;
        }
        let took = clock.monotonic().saturating_sub(began);
        expect(took <= NOTICED, || format!("the API server does not say why: {told}"))?;
        clock.sleep(Duration::from_millis(250)).await;
    }
    let took = loop {
        let (status, told) = plugin.page("/healthz").await?;
        expect(status == 503, || format!("/healthz says {status} {told}"))?;
        for part in ["failed to encrypt, error: no token for the vault", "AADSTS700016"] {
            expect(told.contains(part), || format!("/healthz does not say {part:?}: {told}"))?;
        }
        let took = clock.monotonic().saturating_sub(began);
        if refusals(stage).await?.saturating_sub(before) >= REFUSALS {
            break took;
        }
        expect(took < NOTICED + REMEMBERED, || format!("Entra was asked too seldom in {took:?}"))?;
        clock.sleep(Duration::from_millis(250)).await;
    };
    expect(took >= SPREAD, || format!("Entra was asked {REFUSALS} times in {took:?}"))?;
    expect(plugin.page("/livez").await?.0 == 200, || "/livez fails".to_owned())?;
    server.expect_read("one", VALUE).await
}

/// A plugin whose credential file is not there, is broken, and is good at last.
async fn late(stage: &Stage) -> Result<(), Failed> {
    let file = stage.directory.join("late.credential.json");
    let config = json!({ "aadMSIDataPlaneIdentityPath": file });
    let program = Program::Ours { layout: "upstream" };
    let made = Made { name: "late", key: &stage.key, program };
    let plugin = Instance::start(stage, made, &config).await?;
    let (status, told) = plugin.page("/healthz").await?;
    let expected = "failed to encrypt, error: no token for the vault";
    expect(status == 503 && told.starts_with(expected), || format!("{status} {told}"))?;

    fs::write(&file, "{").map_err(chain)?;
    let (status, told) = plugin.page("/healthz").await?;
    expect(status == 503 && told.starts_with(expected), || format!("{status} {told}"))?;

    let credential = stage.fetch_credential().await?;
    fs::write(&file, &credential).map_err(chain)?;
    let (status, told) = plugin.page("/healthz").await?;
    expect((status, told.as_str()) == (200, "ok"), || format!("{status} {told}"))
}

/// The vault fails: the plugin says so, asks no more than it may, and is back.
async fn outage(stage: &Stage) -> Result<(), Failed> {
    let control = stage.azure.control();
    let plugin = stage.ours("outage", &stage.key, "upstream").await?;
    let rule = json!({
        "name": "kms-outage", "host": stage.key.host(), "seconds": 600, "times": 12,
        "effect": { "type": "status", "status": 503 },
    });
    drop(control.write::<Value>("faults", &rule).await.map_err(chain)?);
    let before = stage.vault_requests().await?;
    let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
    request.set_timeout(Duration::from_secs(3));
    let refused = plugin.v2().status(request).await;
    let asked = stage.vault_requests().await?.saturating_sub(before);
    let told = refused.err().map(|status| status.message().to_owned()).unwrap_or_default();
    expect(told.contains("the vault failed: 503"), || format!("refused with {told:?}"))?;
    expect((2..=5).contains(&asked), || format!("{asked} requests within 3 s"))?;
    // A vault that fails again and again is asked ever less, every 8 s at least.
    for _ in 0..12 {
        let mut request = tonic::Request::new(lanyard_grpc::kms_v2::StatusRequest {});
        request.set_timeout(Duration::from_secs(10));
        if plugin.v2().status(request).await.is_ok() {
            return Ok(());
        }
    }
    Err("the plugin does not come back".into())
}
