//! Secrets in a real store: encrypted, and through a rotation of the key.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::{KmsSuiteFixture, expect_that, trial};

pub(super) fn trials(stage: &Arc<KmsSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("kms::secrets_are_encrypted_in_etcd", stage, secrets_are_encrypted),
        trial("kms::key_rotates_with_a_backup_key", stage, key_is_rotated),
        trial("kms::plugin_restarts_under_load", stage, plugin_restarts_under_load),
        trial("kms::replica_decrypts_ciphertext_of_another_replica", stage, replica_reads_secrets),
    ]
}

const SECRET_VALUE: &str = "planted-4711-marker";

async fn secrets_are_encrypted(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    for layout in ["upstream", "openshift"] {
        let plugin = stage.start_lanyard_plugin(layout, &stage.key, layout).await?;
        let server = stage.start_api_server(&[("azure-one", &plugin)]).await?;
        server.write_secret("one", SECRET_VALUE).await?;
        server.expect_encrypted_in_etcd("one", "azure-one", SECRET_VALUE).await?;
        server.expect_secret_value("one", SECRET_VALUE).await?;
        // From the store, and not from what the API server remembers.
        server.restart(&[("azure-one", &plugin)]).await?;
        server.expect_secret_value("one", SECRET_VALUE).await?;
        server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// The old key writes and the new one reads; the new one writes and the old one reads; the old one
/// goes, and its version is disabled.
async fn key_is_rotated(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let new_key = stage.create_key_version("b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0").await?;
    let old = stage.start_lanyard_plugin("old", &stage.key, "openshift").await?;
    let mut new = stage.start_lanyard_plugin("new", &new_key, "openshift").await?;
    let server = stage.start_api_server(&[("azure-old", &old), ("azure-new", &new)]).await?;
    server.write_secret("before", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-old", SECRET_VALUE).await?;

    server.restart(&[("azure-new", &new), ("azure-old", &old)]).await?;
    server.expect_secret_value("before", SECRET_VALUE).await?;
    server.write_secret("after", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("after", "azure-new", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-old", SECRET_VALUE).await?;
    server.write_secret("before", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-new", SECRET_VALUE).await?;

    // Promotion: the new key moves to the socket of the role. Only names and ids are in the store.
    new.stop().await;
    let promoted = stage.start_lanyard_plugin("active", &new_key, "openshift").await?;
    server.restart(&[("azure-new", &promoted)]).await?;
    drop(old);
    let old_version = json!({ "version": stage.key.version, "enabled": false });
    stage.put_key_version(&old_version).await?;
    let read = async {
        server.expect_secret_value("before", SECRET_VALUE).await?;
        server.expect_secret_value("after", SECRET_VALUE).await
    };
    let outcome = read.await;
    stage.put_key_version(&json!({ "version": stage.key.version, "enabled": true })).await?;
    outcome
}

/// Writes go on while the plugin is killed and started again, and all that was written is read.
async fn plugin_restarts_under_load(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut plugin = stage.start_lanyard_plugin("killed", &stage.key, "upstream").await?;
    let server = stage.start_api_server(&[("azure-one", &plugin)]).await?;
    let mut written = 0;
    for round in 0..3 {
        for _ in 0..20 {
            server
                .write_secret(&format!("s{written}"), &format!("{SECRET_VALUE}-{written}"))
                .await?;
            written += 1;
        }
        plugin.kill();
        for _ in 0..20 {
            server
                .write_secret(&format!("s{written}"), &format!("{SECRET_VALUE}-{written}"))
                .await?;
            written += 1;
        }
        plugin.restart().await?;
        let status = plugin.v2_client().status(lanyard_grpc::kms_v2::StatusRequest {}).await;
        expect_that(status.is_ok(), || format!("round {round}: {status:?}"))?;
    }
    server.restart(&[("azure-one", &plugin)]).await?;
    for at in 0..written {
        server.expect_secret_value(&format!("s{at}"), &format!("{SECRET_VALUE}-{at}")).await?;
    }
    plugin.stop().await;
    expect_that(!plugin.socket_path().exists(), || "an ended plugin leaves its socket".to_owned())
}

async fn replica_reads_secrets(stage: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut one = stage.start_lanyard_plugin("one", &stage.key, "upstream").await?;
    let other = stage.start_lanyard_plugin("other", &stage.key, "openshift").await?;
    let server = stage.start_api_server(&[("azure-one", &one)]).await?;
    server.write_secret("shared", SECRET_VALUE).await?;
    server.restart(&[("azure-one", &other)]).await?;
    server.expect_secret_value("shared", SECRET_VALUE).await?;
    server.write_secret("shared", SECRET_VALUE).await?;
    server.restart(&[("azure-one", &one)]).await?;
    server.expect_secret_value("shared", SECRET_VALUE).await?;
    one.stop().await;
    status_calls_share_one_proof(stage, &other).await
}

/// However many ask for the status, the vault is asked for one proof in ten seconds.
async fn status_calls_share_one_proof(
    stage: &KmsSuiteFixture,
    plugin: &super::KmsPluginProcess,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (stage.vault_request_count().await?, clock.monotonic());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let mut client = plugin.v2_client();
        asking.spawn(async move { client.status(lanyard_grpc::kms_v2::StatusRequest {}).await });
    }
    while let Some(asked) = asking.join_next().await {
        asked.map_err(super::failed_with_causes)?.map_err(super::failed_with_causes)?;
    }
    let took = clock.monotonic().saturating_sub(began).as_secs();
    let most = usize::try_from(2 * (took / 10 + 2))?;
    let found = stage.vault_request_count().await?.saturating_sub(before);
    expect_that(found <= most, || {
        format!("200 questions in {took} s cost the vault {found} requests")
    })
}
