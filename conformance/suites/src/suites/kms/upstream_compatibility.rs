//! Trials of compatibility with upstream's plugin.

use std::sync::Arc;
use std::time::Duration;

use lanyard_grpc::{kms_v1beta1, kms_v2};
use libtest_mimic::{Failed, Trial};

use super::{KmsPluginProcess, KmsSuiteFixture, expect_that, failed_with_causes, trial};

pub(super) fn trials(fixture: &Arc<KmsSuiteFixture>) -> Vec<Trial> {
    vec![
        trial(
            "kms::v2_plugins_decrypt_each_others_ciphertext",
            fixture,
            v2_plugins_read_each_other,
        ),
        trial(
            "kms::v1_plugins_decrypt_each_others_ciphertext",
            fixture,
            v1_plugins_read_each_other,
        ),
        trial("kms::lanyard_replaces_upstream_plugin_and_back", fixture, plugin_is_replaced),
        trial("kms::error_messages_match_upstream", fixture, error_messages_match),
    ]
}

const PLAINTEXT_SEED: &[u8] = b"0123456789abcdef0123456789abcdef";
const SECRET_VALUE: &str = "planted-4711-marker";

async fn v2_plugins_read_each_other(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let theirs = fixture.start_upstream_plugin("theirs", &fixture.key).await?;
    let upstream = fixture.start_lanyard_plugin("upstream", &fixture.key, "upstream").await?;
    let openshift = fixture.start_lanyard_plugin("openshift", &fixture.key, "openshift").await?;
    let status = |instance: &KmsPluginProcess| {
        let mut client = instance.v2_client();
        async move { client.status(kms_v2::StatusRequest {}).await.map(tonic::Response::into_inner) }
    };
    let (their_status, our_status) = (
        status(&theirs).await.map_err(failed_with_causes)?,
        status(&upstream).await.map_err(failed_with_causes)?,
    );
    expect_that(their_status == our_status, || format!("{their_status:?} {our_status:?}"))?;

    for (writer, reader) in [
        (&theirs, &upstream),
        (&theirs, &openshift),
        (&upstream, &theirs),
        (&upstream, &openshift),
        (&openshift, &upstream),
    ] {
        let new = encrypt_seed(writer).await?;
        let request = decrypt_request(new);
        let plain = reader.v2_client().decrypt(request).await.map_err(failed_with_causes)?;
        expect_that(plain.get_ref().plaintext == PLAINTEXT_SEED, || {
            "another plaintext".to_owned()
        })?;
    }
    // Both plugins return annotations with equal names and non-empty values.
    let (their_new, our_new) = (encrypt_seed(&theirs).await?, encrypt_seed(&upstream).await?);
    let names = |it: &kms_v2::EncryptResponse| it.annotations.keys().cloned().collect::<Vec<_>>();
    expect_that(names(&their_new) == names(&our_new), || {
        format!("{:?} {:?}", names(&their_new), names(&our_new))
    })?;
    for (name, value) in &our_new.annotations {
        expect_that(!value.is_empty(), || format!("{name} is empty"))?;
    }
    // Upstream's plugin cannot decrypt the OpenShift layout. If it could, the layout would be unnecessary.
    let fork = encrypt_seed(&openshift).await?;
    let refused = theirs.v2_client().decrypt(decrypt_request(fork)).await;
    expect_that(refused.is_err(), || "upstream's plugin reads the layout of the fork".to_owned())
}

async fn encrypt_seed(instance: &KmsPluginProcess) -> Result<kms_v2::EncryptResponse, Failed> {
    let request =
        kms_v2::EncryptRequest { plaintext: PLAINTEXT_SEED.to_vec(), uid: "case".to_owned() };
    Ok(instance.v2_client().encrypt(request).await.map_err(failed_with_causes)?.into_inner())
}

fn decrypt_request(new: kms_v2::EncryptResponse) -> kms_v2::DecryptRequest {
    let kms_v2::EncryptResponse { ciphertext, key_id, annotations } = new;
    kms_v2::DecryptRequest { ciphertext, uid: "case".to_owned(), key_id, annotations }
}

async fn v1_plugins_read_each_other(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let theirs = fixture.start_upstream_plugin("theirs", &fixture.key).await?;
    let upstream = fixture.start_lanyard_plugin("upstream", &fixture.key, "upstream").await?;
    let openshift = fixture.start_lanyard_plugin("openshift", &fixture.key, "openshift").await?;
    let version = || "v1beta1".to_owned();
    for (writer, reader) in [(&theirs, &upstream), (&upstream, &theirs), (&openshift, &upstream)] {
        let request =
            kms_v1beta1::EncryptRequest { version: version(), plain: PLAINTEXT_SEED.to_vec() };
        let cipher = writer
            .v1_client()
            .encrypt(request)
            .await
            .map_err(failed_with_causes)?
            .into_inner()
            .cipher;
        let request = kms_v1beta1::DecryptRequest { version: version(), cipher };
        let plain = reader.v1_client().decrypt(request).await.map_err(failed_with_causes)?;
        expect_that(plain.get_ref().plain == PLAINTEXT_SEED, || "another plaintext".to_owned())?;
    }
    let version_response = |instance: &KmsPluginProcess| {
        let mut client = instance.v1_client();
        let request = kms_v1beta1::VersionRequest { version: "v1beta1".to_owned() };
        async move { client.version(request).await.map(tonic::Response::into_inner) }
    };
    let (their, our) = (
        version_response(&theirs).await.map_err(failed_with_causes)?,
        version_response(&upstream).await.map_err(failed_with_causes)?,
    );
    let names = (their.version == our.version, their.runtime_name == our.runtime_name);
    expect_that(names == (true, true), || format!("{their:?} {our:?}"))
}

/// Replaces the plugin of a provider name twice while etcd contains Secrets.
async fn plugin_is_replaced(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let mut theirs = fixture.start_upstream_plugin("theirs", &fixture.key).await?;
    let server = fixture.start_api_server(&[("azure-one", &theirs)]).await?;
    server.write_secret("theirs", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("theirs", "azure-one", SECRET_VALUE).await?;

    theirs.stop().await;
    let mut ours = fixture.start_lanyard_plugin("ours", &fixture.key, "upstream").await?;
    server.restart(&[("azure-one", &ours)]).await?;
    server.expect_secret_value("theirs", SECRET_VALUE).await?;
    server.write_secret("ours", SECRET_VALUE).await?;
    server.expect_encrypted_in_etcd("ours", "azure-one", SECRET_VALUE).await?;

    ours.stop().await;
    theirs.restart().await?;
    server.restart(&[("azure-one", &theirs)]).await?;
    server.expect_secret_value("theirs", SECRET_VALUE).await?;
    server.expect_secret_value("ours", SECRET_VALUE).await?;
    server.wait_for_kms_readiness(true, Duration::from_secs(10)).await.map(drop)
}

/// For equal invalid requests, lanyard's error begins with upstream's.
async fn error_messages_match(fixture: &KmsSuiteFixture) -> Result<(), Failed> {
    let theirs = fixture.start_upstream_plugin("theirs", &fixture.key).await?;
    let ours = fixture.start_lanyard_plugin("ours", &fixture.key, "upstream").await?;
    let good = decrypt_request(encrypt_seed(&ours).await?);
    let changed = |work: &dyn Fn(&mut kms_v2::DecryptRequest)| {
        let mut request = good.clone();
        work(&mut request);
        request
    };
    let cases = [
        changed(&|it| it.annotations.clear()),
        changed(&|it| "other".clone_into(&mut it.key_id)),
        changed(&|it| drop(it.annotations.remove("algorithm.azure.akv.io"))),
        changed(&|it| drop(it.annotations.insert("version.azure.akv.io".into(), "2".into()))),
    ];
    for request in cases {
        let their = decrypt_error(&theirs, request.clone()).await?;
        let our = decrypt_error(&ours, request).await?;
        expect_that(
            their.code() == our.code() && our.message().starts_with(their.message()),
            || format!("they: {their}\nwe: {our}"),
        )?;
    }
    // Errors of the vault differ only in the vault's message.
    let flipped =
        changed(&|it| it.ciphertext[9] = if it.ciphertext[9] == b'A' { b'B' } else { b'A' });
    for instance in [&theirs, &ours] {
        let error = decrypt_error(instance, flipped.clone()).await?;
        let begins = error.message().starts_with("failed to decrypt, error: ");
        expect_that(begins && error.code() == tonic::Code::Unknown, || format!("{error}"))?;
    }
    Ok(())
}

async fn decrypt_error(
    instance: &KmsPluginProcess,
    request: kms_v2::DecryptRequest,
) -> Result<tonic::Status, Failed> {
    match instance.v2_client().decrypt(request).await {
        Ok(_) => Err("an invalid request was decrypted".into()),
        Err(status) => Ok(status),
    }
}
