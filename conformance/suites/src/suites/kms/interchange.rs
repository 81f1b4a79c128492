//! What one plugin wrote, the other reads.

use std::sync::Arc;
use std::time::Duration;

use lanyard_grpc::{kms_v1beta1, kms_v2};
use libtest_mimic::{Failed, Trial};

use super::{Instance, Stage, chain, expect, trial};

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    vec![
        trial("kms:upstreams-plugin-and-ours-read-each-other-v2", stage, version_2),
        trial("kms:upstreams-plugin-and-ours-read-each-other-v1", stage, version_1),
        trial("kms:ours-takes-the-place-of-upstreams-and-back", stage, replaced),
        trial("kms:refusals-are-in-upstreams-words", stage, refusals),
    ]
}

const SEED: &[u8] = b"0123456789abcdef0123456789abcdef";
const VALUE: &str = "planted-4711-marker";

async fn version_2(stage: &Stage) -> Result<(), Failed> {
    let theirs = stage.theirs("theirs", &stage.key).await?;
    let upstream = stage.ours("upstream", &stage.key, "upstream").await?;
    let openshift = stage.ours("openshift", &stage.key, "openshift").await?;
    let status = |instance: &Instance| {
        let mut client = instance.v2();
        async move { client.status(kms_v2::StatusRequest {}).await.map(tonic::Response::into_inner) }
    };
    let (their_status, our_status) =
        (status(&theirs).await.map_err(chain)?, status(&upstream).await.map_err(chain)?);
    expect(their_status == our_status, || format!("{their_status:?} {our_status:?}"))?;

    for (writer, reader) in [
        (&theirs, &upstream),
        (&theirs, &openshift),
        (&upstream, &theirs),
        (&upstream, &openshift),
        (&openshift, &upstream),
    ] {
        let new = encrypt(writer).await?;
        let request = decrypt_request(new);
        let plain = reader.v2().decrypt(request).await.map_err(chain)?;
        expect(plain.get_ref().plaintext == SEED, || "another plaintext".to_owned())?;
    }
    // The same annotations, with values for those that both know from the reply.
    let (their_new, our_new) = (encrypt(&theirs).await?, encrypt(&upstream).await?);
    let names = |it: &kms_v2::EncryptResponse| it.annotations.keys().cloned().collect::<Vec<_>>();
    expect(names(&their_new) == names(&our_new), || {
        format!("{:?} {:?}", names(&their_new), names(&our_new))
    })?;
    for (name, value) in &our_new.annotations {
        expect(!value.is_empty(), || format!("{name} is empty"))?;
    }
    // Upstream's cannot read the fork's layout: if it could, there would be no two.
    let fork = encrypt(&openshift).await?;
    let refused = theirs.v2().decrypt(decrypt_request(fork)).await;
    expect(refused.is_err(), || "upstream's plugin reads the layout of the fork".to_owned())
}

async fn encrypt(instance: &Instance) -> Result<kms_v2::EncryptResponse, Failed> {
    let request = kms_v2::EncryptRequest { plaintext: SEED.to_vec(), uid: "case".to_owned() };
    Ok(instance.v2().encrypt(request).await.map_err(chain)?.into_inner())
}

fn decrypt_request(new: kms_v2::EncryptResponse) -> kms_v2::DecryptRequest {
    let kms_v2::EncryptResponse { ciphertext, key_id, annotations } = new;
    kms_v2::DecryptRequest { ciphertext, uid: "case".to_owned(), key_id, annotations }
}

async fn version_1(stage: &Stage) -> Result<(), Failed> {
    let theirs = stage.theirs("theirs", &stage.key).await?;
    let upstream = stage.ours("upstream", &stage.key, "upstream").await?;
    let openshift = stage.ours("openshift", &stage.key, "openshift").await?;
    let version = || "v1beta1".to_owned();
    for (writer, reader) in [(&theirs, &upstream), (&upstream, &theirs), (&openshift, &upstream)] {
        let request = kms_v1beta1::EncryptRequest { version: version(), plain: SEED.to_vec() };
        let cipher = writer.v1().encrypt(request).await.map_err(chain)?.into_inner().cipher;
        let request = kms_v1beta1::DecryptRequest { version: version(), cipher };
        let plain = reader.v1().decrypt(request).await.map_err(chain)?;
        expect(plain.get_ref().plain == SEED, || "another plaintext".to_owned())?;
    }
    let told = |instance: &Instance| {
        let mut client = instance.v1();
        let request = kms_v1beta1::VersionRequest { version: "v1beta1".to_owned() };
        async move { client.version(request).await.map(tonic::Response::into_inner) }
    };
    let (their, our) = (told(&theirs).await.map_err(chain)?, told(&upstream).await.map_err(chain)?);
    let names = (their.version == our.version, their.runtime_name == our.runtime_name);
    expect(names == (true, true), || format!("{their:?} {our:?}"))
}

/// The plugin under a provider's name is exchanged, twice, with the store full of Secrets.
async fn replaced(stage: &Stage) -> Result<(), Failed> {
    let mut theirs = stage.theirs("theirs", &stage.key).await?;
    let server = stage.api_server(&[("azure-one", &theirs)]).await?;
    server.write("theirs", VALUE).await?;
    server.expect_stored("theirs", "azure-one", VALUE).await?;

    theirs.end().await;
    let mut ours = stage.ours("ours", &stage.key, "upstream").await?;
    server.restart(&[("azure-one", &ours)]).await?;
    server.expect_read("theirs", VALUE).await?;
    server.write("ours", VALUE).await?;
    server.expect_stored("ours", "azure-one", VALUE).await?;

    ours.end().await;
    theirs.start_again().await?;
    server.restart(&[("azure-one", &theirs)]).await?;
    server.expect_read("theirs", VALUE).await?;
    server.expect_read("ours", VALUE).await?;
    server.await_ready(true, Duration::from_secs(10)).await.map(drop)
}

/// For equal requests that are refused, our text begins with upstream's.
async fn refusals(stage: &Stage) -> Result<(), Failed> {
    let theirs = stage.theirs("theirs", &stage.key).await?;
    let ours = stage.ours("ours", &stage.key, "upstream").await?;
    let good = decrypt_request(encrypt(&ours).await?);
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
        let their = refusal(&theirs, request.clone()).await?;
        let our = refusal(&ours, request).await?;
        expect(their.code() == our.code() && our.message().starts_with(their.message()), || {
            format!("they: {their}\nwe: {our}")
        })?;
    }
    // What the vault refuses differs in the vault's words alone.
    let flipped =
        changed(&|it| it.ciphertext[9] = if it.ciphertext[9] == b'A' { b'B' } else { b'A' });
    for instance in [&theirs, &ours] {
        let told = refusal(instance, flipped.clone()).await?;
        let begins = told.message().starts_with("failed to decrypt, error: ");
        expect(begins && told.code() == tonic::Code::Unknown, || format!("{told}"))?;
    }
    Ok(())
}

async fn refusal(
    instance: &Instance,
    request: kms_v2::DecryptRequest,
) -> Result<tonic::Status, Failed> {
    match instance.v2().decrypt(request).await {
        Ok(_) => Err("what is wrong was decrypted".into()),
        Err(status) => Ok(status),
    }
}
