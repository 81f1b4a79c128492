//! The identity goes and comes back.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Made, Program, Stage, chain, expect, trial};

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("kms:a-right-that-is-taken-away-and-given-back", stage, revoked),
        trial("kms:a-credential-file-that-comes-late", stage, late),
        trial("kms:a-vault-that-fails-for-a-while", stage, outage),
    ]
}

const VALUE: &str = "planted-4711-marker";

/// The API server looks every 10 s at a plugin that fails, and our good answer counts for as long;
/// one that it believes to be good it asks every 60 s, and its health page every 20 s.
const NOTICED: Duration = Duration::from_mins(1);

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

    let world: World = control.read("world").await.map_err(chain)?;
    let kms = world.components.into_iter().find(|it| it.component == "kms");
    stage.grant(&kms.ok_or("the world has no kms")?.client_id).await?;
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

/// A plugin whose credential file is not there, is broken, and is good at last.
async fn late(stage: &Stage) -> Result<(), Failed> {
    let file = stage.directory.join("late.credential.json");
    let config = json!({ "aadMSIDataPlaneIdentityPath": file });
    let program = Program::Ours { layout: "upstream" };
    let made = Made { name: "late", key: &stage.key, program };
    let plugin = super::Instance::start(stage, made, &config).await?;
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
