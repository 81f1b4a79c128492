//! From class parameters to files, with a vault in memory.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use lanyard_api::{ProviderParameters, VaultObjectKind, VaultObjectVersion};
use lanyard_clock::{ErrorHint as _, RetryClass};
use lanyard_keyvault::{
    CertificateFileOptions, FetchError, FetchedCertificate, FetchedKey, FetchedSecret,
    ListedVersion, MountedFile, ObjectAttributes, PublicJwk, VaultErrorDetails, VaultReadError,
    VaultSource, VolumeFileOptions, fetch_files, fetch_objects,
};
use lanyard_vocabulary::{Hop, SecretName};

/// A vault with `<name>@<version>` as every value, which counts reads.
#[derive(Debug, Default)]
struct InMemoryVaultSource {
    reads: Mutex<Vec<String>>,
    lists: AtomicUsize,
    concurrent_reads: AtomicUsize,
    max_concurrent_reads: AtomicUsize,
    content_types: BTreeMap<&'static str, &'static str>,
}

impl InMemoryVaultSource {
    async fn read(
        &self,
        kind: &str,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<VaultObjectVersion, VaultReadError> {
        let now = self.concurrent_reads.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_concurrent_reads.fetch_max(now, Ordering::SeqCst);
        // Later reads end earlier, so that the test detects a wrong order.
        let turns = 40_usize.saturating_sub(self.reads.lock().unwrap().len());
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        self.concurrent_reads.fetch_sub(1, Ordering::SeqCst);
        let version = version.map_or("current", VaultObjectVersion::as_str);
        self.reads.lock().unwrap().push(format!("{kind}/{name}/{version}"));
        if name.as_str().starts_with("missing") {
            let reply = VaultErrorDetails {
                status: 404,
                code: Some("SecretNotFound".to_owned()),
                inner_code: None,
                message: String::new(),
            };
            return Err(VaultReadError::NotFound(reply));
        }
        Ok(version.parse().unwrap())
    }
}

#[async_trait]
impl VaultSource for InMemoryVaultSource {
    async fn fetch_secret(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedSecret, VaultReadError> {
        let version = self.read("secret", name, version).await?;
        let content_type = self.content_types.get(name.as_str());
        let tags = [("renew_after".to_owned(), "2026-11-21T12:00:00Z".to_owned())].into();
        Ok(FetchedSecret {
            value: format!("{name}@{version}").into(),
            version,
            attributes: ObjectAttributes { tags, ..ObjectAttributes::default() },
            content_type: content_type.map(|&text| text.to_owned()),
            is_certificate_secret: content_type.is_some(),
        })
    }

    async fn fetch_key(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedKey, VaultReadError> {
        let version = self.read("key", name, version).await?;
        let key = PublicJwk::Rsa { modulus: vec![0xc0; 256], exponent: vec![1, 0, 1] };
        Ok(FetchedKey { version, attributes: ObjectAttributes::default(), key })
    }

    async fn fetch_certificate(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedCertificate, VaultReadError> {
        let version = self.read("cert", name, version).await?;
        Ok(FetchedCertificate { version, attributes: ObjectAttributes::default(), der: vec![1] })
    }

    async fn fetch_versions(
        &self,
        _: VaultObjectKind,
        _: &SecretName,
    ) -> Result<Vec<ListedVersion>, VaultReadError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        let listed = |index: i64| ListedVersion {
            version: format!("v{index}").parse().unwrap(),
            attributes: ObjectAttributes {
                created: Timestamp::from_second(index).ok(),
                ..ObjectAttributes::default()
            },
        };
        Ok((1..=4).map(listed).collect())
    }
}

fn parameters(objects: &[&str]) -> ProviderParameters {
    let entry = |object: &&str| format!("  - |\n    {}\n", object.replace(", ", "\n    "));
    let entries: String = objects.iter().map(entry).collect();
    let text = format!("array:\n{entries}");
    let map = [("keyvaultName", "kv1"), ("tenantId", "t"), ("objects", text.as_str())];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    ProviderParameters::parse(&map).unwrap()
}

async fn fetch_test_files(
    objects: &[&str],
    vault: &InMemoryVaultSource,
) -> Result<Vec<MountedFile>, FetchError> {
    fetch_files(&parameters(objects), vault, VolumeFileOptions::default()).await
}

/// The path, content and id of each file.
fn describe_files(files: &[MountedFile]) -> Vec<String> {
    let report = |file: &MountedFile| {
        let content = String::from_utf8_lossy(file.content.expose());
        let first = content.lines().next().unwrap_or_default().to_owned();
        format!("{}={first} {} {:o}", file.path, file.object, file.mode)
    };
    files.iter().map(report).collect()
}

#[tokio::test]
async fn files_follow_entry_order_with_path_mode_and_id() {
    let vault = InMemoryVaultSource::default();
    let objects = [
        "objectName: one, objectType: secret",
        "objectName: two, objectType: key, objectAlias: keys/two.pub",
        "objectName: three, objectType: cert, filePermission: 0600",
        "objectName: four, objectType: secret, objectVersion: abc, filePermission: 0000",
        "objectName: five, objectType: secret, objectVersion: latest",
    ];
    let files = fetch_test_files(&objects, &vault).await.unwrap();
    let expected = [
        "one=one@current secret/one 644",
        "keys/two.pub=-----BEGIN PUBLIC KEY----- key/two 644",
        "three=-----BEGIN CERTIFICATE----- cert/three 600",
        "four=four@abc secret/four 0",
        "five=five@current secret/five 644",
    ];
    assert_eq!(describe_files(&files), expected);
    assert_eq!(files[3].version.as_str(), "abc");
    assert_eq!(files[0].attributes.renew_after(), "2026-11-21T12:00:00Z".parse().ok());
    assert!(!format!("{files:?}").contains("one@current"));
}

#[tokio::test]
async fn each_distinct_object_is_read_once() {
    let vault = InMemoryVaultSource::default();
    let objects = [
        "objectName: one, objectType: secret, objectAlias: a",
        "objectName: one, objectType: secret, objectAlias: b",
        "objectName: one, objectType: cert, objectAlias: c",
        "objectName: one, objectType: secret, objectAlias: d, objectVersion: v3",
        "objectName: one, objectType: secret, objectAlias: e, objectVersionHistory: 2",
        "objectName: one, objectType: secret, objectAlias: f, objectVersion: latest",
    ];
    let files = fetch_test_files(&objects, &vault).await.unwrap();
    assert_eq!(files.len(), 7);
    let mut reads = vault.reads.lock().unwrap().clone();
    reads.sort();
    let expected = ["cert/one/current", "secret/one/current", "secret/one/v3", "secret/one/v4"];
    assert_eq!(reads, expected);
}

#[tokio::test]
async fn history_produces_exactly_the_requested_number_of_files() {
    let vault = InMemoryVaultSource::default();
    let objects = [
        "objectName: one, objectType: secret, objectVersionHistory: 2",
        "objectName: two, objectType: secret, objectVersionHistory: 3, objectVersion: v2",
        "objectName: three, objectType: secret, objectVersionHistory: 1",
        "objectName: one, objectType: secret, objectVersionHistory: 3, objectAlias: again",
    ];
    let files = fetch_test_files(&objects, &vault).await.unwrap();
    let expected = [
        "one/0=one@v4 secret/one/0 644",
        "one/1=one@v3 secret/one/1 644",
        "two/0=two@v2 secret/two/0 644",
        "two/1=two@v1 secret/two/1 644",
        "three=three@current secret/three 644",
        "again/0=one@v4 secret/one/0 644",
        "again/1=one@v3 secret/one/1 644",
        "again/2=one@v2 secret/one/2 644",
    ];
    assert_eq!(describe_files(&files), expected);
    assert_eq!(vault.lists.load(Ordering::SeqCst), 2);
    assert_eq!(vault.reads.lock().unwrap().len(), 6);
}

#[tokio::test]
async fn unavailable_history_start_is_a_read_error() {
    let object = "objectName: one, objectType: secret, objectVersionHistory: 2, objectVersion: v9";
    let vault = InMemoryVaultSource::default();
    let error = fetch_objects(&parameters(&[object]), &vault).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "could not choose the version history of secret `one` version `v9`"
    );
    assert_eq!(error.retry(), RetryClass::Invalid);
    assert!(vault.reads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn reads_run_with_bounded_concurrency() {
    let vault = InMemoryVaultSource::default();
    let objects: Vec<_> =
        (0..30).map(|index| format!("objectName: n{index}, objectType: secret")).collect();
    let objects: Vec<_> = objects.iter().map(String::as_str).collect();
    let files = fetch_test_files(&objects, &vault).await.unwrap();
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let expected: Vec<_> = (0..30).map(|index| format!("n{index}")).collect();
    assert_eq!(paths, expected);
    assert_eq!(vault.max_concurrent_reads.load(Ordering::SeqCst), 8);
}

#[tokio::test]
async fn the_first_failure_in_the_order_of_the_entries_names_its_object() {
    let vault = InMemoryVaultSource::default();
    let objects = [
        "objectName: fine, objectType: secret",
        "objectName: missing-a, objectType: secret, objectVersion: v1",
        "objectName: missing-b, objectType: key",
    ];
    let error = fetch_test_files(&objects, &vault).await.unwrap_err();
    assert_eq!(error.to_string(), "could not read secret `missing-a` version `v1`");
    assert_eq!(error.hop(), Hop::VaultRead);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "the vault has no such object: 404 SecretNotFound");
    assert!(error.hint().unwrap().contains("objectName"));
}

#[tokio::test]
async fn decode_error_and_read_error_report_different_hops() {
    let vault = InMemoryVaultSource::default();
    let object = "objectName: one, objectType: secret, objectEncoding: hex, objectAlias: dir/a";
    let error = fetch_test_files(&[object], &vault).await.unwrap_err();
    assert_eq!(error.hop(), Hop::Decode);
    assert_eq!(
        error.to_string(),
        "could not make the file `dir/a` from secret `one` version `current`"
    );
    let mut shown = format!("{error:?}");
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        shown.push_str(&error.to_string());
        cause = error.source();
    }
    assert!(shown.contains("not hex") && !shown.contains("one@"), "{shown}");
}

#[tokio::test]
async fn certificate_and_key_files_precede_the_combined_file_with_its_id() {
    let content_types = [("one", "application/x-pem-file")].into();
    let vault = InMemoryVaultSource { content_types, ..InMemoryVaultSource::default() };
    let options = VolumeFileOptions {
        default_mode: 0o400,
        certificates: CertificateFileOptions {
            write_separate_files: true,
            ..CertificateFileOptions::default()
        },
    };
    let objects = ["objectName: one, objectType: secret, objectAlias: tls"];
    let files = fetch_files(&parameters(&objects), &vault, options).await.unwrap();
    let expected =
        ["tls.crt= secret/one 400", "tls.key= secret/one 400", "tls=one@current secret/one 400"];
    assert_eq!(describe_files(&files), expected);
}

#[tokio::test]
async fn fetch_future_is_send() {
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let parameters = parameters(&["objectName: one, objectType: secret"]);
    let vault = InMemoryVaultSource::default();
    let files =
        is_send(fetch_files(&parameters, &vault, VolumeFileOptions::default())).await.unwrap();
    assert_eq!(files.len(), 1);
}
