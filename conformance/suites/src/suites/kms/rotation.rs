//! Secrets in a real store: encrypted, and through a rotation of the key.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::{Stage, expect, trial};

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("kms:secrets-are-encrypted-in-etcd", stage, encrypted),
        trial("kms:the-key-rotates-with-a-backup-key", stage, rotated),
        trial("kms:a-plugin-restarts-under-load", stage, restarted),
        trial("kms:a-replica-reads-what-another-wrote", stage, replicated),
    ]
}

const VALUE: &str = "planted-4711-marker";

async fn encrypted(stage: &Stage) -> Result<(), Failed> {
    for layout in ["upstream", "openshift"] {
        let plugin = stage.ours(layout, &stage.key, layout).await?;
        let server = stage.api_server(&[("azure-one", &plugin)]).await?;
        server.write("one", VALUE).await?;
        server.expect_stored("one", "azure-one", VALUE).await?;
        server.expect_read("one", VALUE).await?;
        // From the store, and not from what the API server remembers.
        server.restart(&[("azure-one", &plugin)]).await?;
        server.expect_read("one", VALUE).await?;
        server.await_ready(true, Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// The old key writes and the new one reads; the new one writes and the old one reads; the old one
/// goes, and its version is disabled.
async fn rotated(stage: &Stage) -> Result<(), Failed> {
    let new_key = stage.new_version("b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0").await?;
    let old = stage.ours("old", &stage.key, "openshift").await?;
    let mut new = stage.ours("new", &new_key, "openshift").await?;
    let server = stage.api_server(&[("azure-old", &old), ("azure-new", &new)]).await?;
    server.write("before", VALUE).await?;
    server.expect_stored("before", "azure-old", VALUE).await?;

    server.restart(&[("azure-new", &new), ("azure-old", &old)]).await?;
    server.expect_read("before", VALUE).await?;
    server.write("after", VALUE).await?;
    server.expect_stored("after", "azure-new", VALUE).await?;
    server.expect_stored("before", "azure-old", VALUE).await?;
    server.write("before", VALUE).await?;
    server.expect_stored("before", "azure-new", VALUE).await?;

    // Promotion: the new key moves to the socket of the role. Only names and ids are in the store.
    new.end().await;
    let promoted = stage.ours("active", &new_key, "openshift").await?;
    server.restart(&[("azure-new", &promoted)]).await?;
    drop(old);
    let old_version = json!({ "version": stage.key.version, "enabled": false });
    stage.put_key(&old_version).await?;
    let read = async {
        server.expect_read("before", VALUE).await?;
        server.expect_read("after", VALUE).await
    };
    let outcome = read.await;
    stage.put_key(&json!({ "version": stage.key.version, "enabled": true })).await?;
    outcome
}

/// Writes go on while the plugin is killed and started again, and all that was written is read.
async fn restarted(stage: &Stage) -> Result<(), Failed> {
    let mut plugin = stage.ours("killed", &stage.key, "upstream").await?;
    let server = stage.api_server(&[("azure-one", &plugin)]).await?;
    let mut written = 0;
    for round in 0..3 {
        for _ in 0..20 {
            server.write(&format!("s{written}"), &format!("{VALUE}-{written}")).await?;
            written += 1;
        }
        plugin.kill();
        for _ in 0..20 {
            server.write(&format!("s{written}"), &format!("{VALUE}-{written}")).await?;
            written += 1;
        }
        plugin.start_again().await?;
        let status = plugin.v2().status(lanyard_grpc::kms_v2::StatusRequest {}).await;
        expect(status.is_ok(), || format!("round {round}: {status:?}"))?;
    }
    server.restart(&[("azure-one", &plugin)]).await?;
    for at in 0..written {
        server.expect_read(&format!("s{at}"), &format!("{VALUE}-{at}")).await?;
    }
    plugin.end().await;
    expect(!plugin.socket().exists(), || "an ended plugin leaves its socket".to_owned())
}

async fn replicated(stage: &Stage) -> Result<(), Failed> {
    let mut one = stage.ours("one", &stage.key, "upstream").await?;
    let other = stage.ours("other", &stage.key, "openshift").await?;
    let server = stage.api_server(&[("azure-one", &one)]).await?;
    server.write("shared", VALUE).await?;
    server.restart(&[("azure-one", &other)]).await?;
    server.expect_read("shared", VALUE).await?;
    server.write("shared", VALUE).await?;
    server.restart(&[("azure-one", &one)]).await?;
    server.expect_read("shared", VALUE).await?;
    one.end().await;
    frugal(stage, &other).await
}

/// However many ask for the status, the vault is asked for one proof in ten seconds.
async fn frugal(stage: &Stage, plugin: &super::Instance) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (stage.vault_requests().await?, clock.monotonic());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let mut client = plugin.v2();
        asking.spawn(async move { client.status(lanyard_grpc::kms_v2::StatusRequest {}).await });
    }
    while let Some(asked) = asking.join_next().await {
        asked.map_err(super::chain)?.map_err(super::chain)?;
    }
    let took = clock.monotonic().saturating_sub(began).as_secs();
    let most = usize::try_from(2 * (took / 10 + 2))?;
    let found = stage.vault_requests().await?.saturating_sub(before);
    expect(found <= most, || format!("200 questions in {took} s cost the vault {found} requests"))
}
