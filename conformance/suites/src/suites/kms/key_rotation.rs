//! Trials of encrypted Secrets in etcd and of key rotation.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::{KmsSuiteFixture, expect_that, trial};

pub(super) fn trials(fixture: &Arc<KmsSuiteFixture>) -> Vec<Trial> {
    vec![
        trial("kms::secrets_are_encrypted_in_etcd", fixture, secrets_are_encrypted),
        trial("kms::key_rotates_with_a_backup_key", fixture, key_is_rotated),
        trial("kms::plugin_restarts_under_load", fixture, plugin_restarts_under_load),
        trial(
            "kms::replica_decrypts_ciphertext_of_another_replica",
            fixture,
            replica_reads_secrets,
        ),
    ]
}

const SECRET_VALUE: &str = "planted-4711-marker";

async fn secrets_are_encrypted(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    for layout in ["upstream", "openshift"] {
        let plugin = fixture.start_lanyard_plugin(layout, &fixture.key, layout).await?;
        let server = fixture.start_api_server(&[("azure-one", &plugin)]).await?;
        server.write_secret("one", SECRET_VALUE).await?;
        server.expect_encrypted_in_etcd("one", "azure-one", SECRET_VALUE).await?;
        server.expect_secret_value("one", SECRET_VALUE).await?;
        // The restarted API server reads from etcd and not from its cache.
        server.restart(&[("azure-one", &plugin)]).await?;
        server.expect_secret_value("one", SECRET_VALUE).await?;
        server.wait_for_kms_readiness(true, Duration::from_secs(5)).await?;
    }
    Ok(())
}

/// Rotates the key: the new key is added for reading, then encrypts, then the old key is removed and its
/// version disabled.
async fn key_is_rotated(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let new_key = fixture.create_key_version("b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0").await?;
    let old = fixture.start_lanyard_plugin("old", &fixture.key, "openshift").await?;
    let mut new = fixture.start_lanyard_plugin("new", &new_key, "openshift").await?;
    let server = fixture.start_api_server(&[("azure-old", &old), ("azure-new", &new)]).await?;
    server.write_secret("before", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-old", SECRET_VALUE).await?;

    server.restart(&[("azure-new", &new), ("azure-old", &old)]).await?;
    server.expect_secret_value("before", SECRET_VALUE).await?;
    server.write_secret("after", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("after", "azure-new", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-old", SECRET_VALUE).await?;
    server.write_secret("before", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("before", "azure-new", SECRET_VALUE).await?;

    // Promotion: the new key moves to the socket of the active role. etcd stores only provider names and key
    // ids.
    new.stop().await;
    let promoted = fixture.start_lanyard_plugin("active", &new_key, "openshift").await?;
    server.restart(&[("azure-new", &promoted)]).await?;
    drop(old);
    let old_version = json!({ "version": fixture.key.version, "enabled": false });
    fixture.put_key_version(&old_version).await?;
    let read = async {
        server.expect_secret_value("before", SECRET_VALUE).await?;
        server.expect_secret_value("after", SECRET_VALUE).await
    };
    let outcome = read.await;
    fixture.put_key_version(&json!({ "version": fixture.key.version, "enabled": true })).await?;
    outcome
}

/// Kills and restarts the plugin during writes, and expects that every Secret is readable.
async fn plugin_restarts_under_load(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut plugin = fixture.start_lanyard_plugin("killed", &fixture.key, "upstream").await?;
    let server = fixture.start_api_server(&[("azure-one", &plugin)]).await?;
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

async fn replica_reads_secrets(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut one = fixture.start_lanyard_plugin("one", &fixture.key, "upstream").await?;
    let other = fixture.start_lanyard_plugin("other", &fixture.key, "openshift").await?;
    let server = fixture.start_api_server(&[("azure-one", &one)]).await?;
    server.write_secret("shared", SECRET_VALUE).await?;
    server.restart(&[("azure-one", &other)]).await?;
    server.expect_secret_value("shared", SECRET_VALUE).await?;
    server.write_secret("shared", SECRET_VALUE).await?;
    server.restart(&[("azure-one", &one)]).await?;
    server.expect_secret_value("shared", SECRET_VALUE).await?;
    one.stop().await;
    status_calls_share_one_proof(fixture, &other).await
}

/// Expects at most one status proof in ten seconds at the vault, however many status calls arrive.
async fn status_calls_share_one_proof(
    fixture: &KmsSuiteFixture,
    plugin: &super::KmsPluginProcess,
) -> Result<(), Failed> {
    let clock = SystemClock::new();
    let (before, began) = (fixture.vault_request_count().await?, clock.monotonic());
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
    let found = fixture.vault_request_count().await?.saturating_sub(before);
    expect_that(found <= most, || {
        format!("200 questions in {took} s cost the vault {found} requests")
    })
}
