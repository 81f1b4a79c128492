use aws_lc_rs::rsa::KeySize;
use jiff::Timestamp;
use lanyard_clock::{Clock as _, ManualClock};
use lanyard_vocabulary::format_error_chain;

use super::*;
use crate::fake_vault::{FakeKmsVault, FakeVaultFault, vector_key, vector_text};

const MINUTE: Duration = Duration::from_mins(1);

struct KmsPluginFixture {
    vault: Arc<FakeKmsVault>,
    plugin: KmsPlugin,
    clock: ManualClock,
}

impl KmsPluginFixture {
    fn new(layout: CiphertextLayout) -> Self {
        Self::with_vault(layout, FakeKmsVault::with_vector_key())
    }

    fn with_vault(layout: CiphertextLayout, vault: FakeKmsVault) -> Self {
        let (vault, clock) = (Arc::new(vault), ManualClock::starting_at(Timestamp::UNIX_EPOCH));
        let parts = KmsPluginParts {
            key: vector_key(),
            layout,
            vault: Arc::<FakeKmsVault>::clone(&vault),
            metrics: KmsMetrics::default(),
            clock: Arc::new(clock.clone()),
        };
        Self { vault, plugin: KmsPlugin::new(parts), clock }
    }

    /// Runs `work` while the clock jumps to whatever is slept for.
    async fn run_with_clock<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let task = tokio::spawn(work);
        while !task.is_finished() {
            // What can be done without time comes first.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            if let Some(due) = self.clock.time_until_next_deadline() {
                self.clock.advance(due);
            }
        }
        task.await.unwrap()
    }
}

fn example_plaintext() -> Vec<u8> {
    (0..32).collect()
}

/// The vector's ciphertext as an API server keeps it.
fn vector_ciphertext(layout: CiphertextLayout) -> EncryptedValue {
    let ciphertext = vector_text(&format!("/{layout}/ciphertext"));
    let ciphertext = match layout {
        CiphertextLayout::Upstream => ciphertext.into_bytes(),
        CiphertextLayout::OpenShift => layout.ciphertext(&ciphertext).unwrap(),
    };
    let annotations = desired_annotations(layout, &crate::VaultReplyHeaders::default());
    EncryptedValue { ciphertext, key_id: vector_text("/keyId"), annotations }
}

const LAYOUTS: [CiphertextLayout; 2] = [CiphertextLayout::Upstream, CiphertextLayout::OpenShift];

#[tokio::test]
async fn ciphertexts_of_both_layouts_are_decrypted() {
    for written in LAYOUTS {
        let bench = KmsPluginFixture::new(written);
        for read in LAYOUTS {
            let found = bench.plugin.decrypt(&vector_ciphertext(read), MINUTE).await.unwrap();
            assert_eq!(*found, example_plaintext(), "{written} reads {read}");
        }
        let v1 = vector_text("/v1/ciphertext").into_bytes();
        assert_eq!(*bench.plugin.decrypt_v1(&v1, MINUTE).await.unwrap(), example_plaintext());
    }
}

#[tokio::test]
async fn vault_requests_match_upstream_per_layout() {
    for layout in LAYOUTS {
        let bench = KmsPluginFixture::new(layout);
        let new = bench.plugin.encrypt(&example_plaintext(), MINUTE).await.unwrap();
        assert_eq!(new.key_id, vector_text("/keyId"));
        bench.plugin.decrypt(&new, MINUTE).await.unwrap();
        bench.plugin.prove(MINUTE).await.unwrap();
        let asked = bench.vault.requests.lock().clone();
        assert_eq!(asked[0].2, vector_text(&format!("/{layout}/requestValue")));
        assert_eq!(asked[2].2, vector_text(&format!("/healthcheck/{layout}")));
        assert!(asked.iter().all(|(_, algorithm, _)| *algorithm == KeyAlgorithm::RsaOaep256));
    }
}

#[tokio::test]
async fn layouts_decrypt_each_other_in_both_versions() {
    for written in LAYOUTS {
        let bench = KmsPluginFixture::new(written);
        let other = KmsPluginFixture::new(if written == CiphertextLayout::Upstream {
            CiphertextLayout::OpenShift
        } else {
            CiphertextLayout::Upstream
        });
        let new = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap();
        assert_eq!(CiphertextLayout::of_ciphertext(&new.ciphertext), Ok(written));
        assert_eq!(other.plugin.decrypt(&new, MINUTE).await.unwrap().as_slice(), b"seed");
        let old = bench.plugin.encrypt_v1(b"key", MINUTE).await.unwrap();
        assert_eq!(other.plugin.decrypt_v1(&old, MINUTE).await.unwrap().as_slice(), b"key");
    }
}

#[tokio::test]
async fn plaintext_limit_depends_on_key_size_and_layout() {
    let sizes = [(KeySize::Rsa3072, 318, 238), (KeySize::Rsa4096, 446, 334)];
    for (size, upstream, openshift) in sizes {
        for (layout, most) in
            [(CiphertextLayout::Upstream, upstream), (CiphertextLayout::OpenShift, openshift)]
        {
            let bench = KmsPluginFixture::with_vault(layout, FakeKmsVault::with_new_key(size));
            let longest = vec![7; most];
            let new = bench.plugin.encrypt(&longest, MINUTE).await.unwrap();
            assert_eq!(*bench.plugin.decrypt(&new, MINUTE).await.unwrap(), longest);
            let error = bench.plugin.encrypt(&vec![7; most + 1], MINUTE).await.unwrap_err();
            assert_eq!(error.label(), "refused", "{layout}");
        }
    }
}

/// One change each to what is good.
#[tokio::test]
async fn altered_ciphertext_uses_upstream_error_text() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let change = |work: &dyn Fn(&mut EncryptedValue)| {
        let mut changed = vector_ciphertext(CiphertextLayout::Upstream);
        work(&mut changed);
        changed
    };
    let mut fork = vector_ciphertext(CiphertextLayout::OpenShift);
    fork.ciphertext.pop();
    let cases = [
        (
            change(&|it| it.annotations.clear()),
            "invalid annotations, annotations cannot be empty",
            0,
        ),
        (
            change(&|it| "x".clone_into(&mut it.key_id)),
            "key id x does not match expected key id",
            0,
        ),
        (
            change(&|it| drop(it.annotations.remove("algorithm.azure.akv.io"))),
            "algorithm  does not match expected algorithm RSA-OAEP-256",
            0,
        ),
        (
            change(&|it| drop(it.annotations.insert("version.azure.akv.io".into(), "2".into()))),
            "version 2 does not match expected version 1",
            0,
        ),
        (
            change(&|it| it.ciphertext.extend(b"==")),
            "failed to decrypt, error: a ciphertext of 344 bytes has neither",
            0,
        ),
        (fork, "failed to decrypt, error: a ciphertext of 255 bytes has neither", 0),
        (
            change(&|it| it.ciphertext[99] = if it.ciphertext[99] == b'A' { b'B' } else { b'A' }),
            "failed to decrypt, error: the vault refused: 400",
            1,
        ),
    ];
    for (sealed, expected, requests) in cases {
        let before = bench.vault.request_count();
        let error = bench.plugin.decrypt(&sealed, MINUTE).await.unwrap_err();
        assert!(format_error_chain(&error).starts_with(expected), "{}", format_error_chain(&error));
        assert!(error.hint().is_some());
        assert_eq!(bench.vault.request_count() - before, requests, "{expected}");
    }
}

#[tokio::test]
async fn disabled_key_error_quotes_the_vault() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults([FakeVaultFault::Status(403), FakeVaultFault::Status(403)]);
    let error = bench
        .plugin
        .decrypt(&vector_ciphertext(CiphertextLayout::Upstream), MINUTE)
        .await
        .unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to decrypt, error: the key cannot be used: 403: scripted"
    );
    let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to encrypt, error: the key cannot be used: 403: scripted"
    );
    assert_eq!(bench.vault.request_count(), 2, "what does not pass is not asked again");
}

#[tokio::test]
async fn unexpected_kid_fails_encrypt_but_not_decrypt() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    for kid in [Some("https://EXAMPLE.vault.azure.net/keys/mykey/ABCD"), Some("https://x:8/"), None]
    {
        bench.vault.inject_faults([FakeVaultFault::Kid(kid)]);
        let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        let expected = format!(
            "key id initialized does not match with the key id from encryption result, expected: {}, got: {}",
            vector_text("/keyId"),
            kid.unwrap_or_default()
        );
        assert_eq!(error.to_string(), expected);
        bench.vault.inject_faults([FakeVaultFault::Kid(kid)]);
        let found = bench
            .plugin
            .decrypt(&vector_ciphertext(CiphertextLayout::Upstream), MINUTE)
            .await
            .unwrap();
        assert_eq!(*found, example_plaintext());
    }
}

#[tokio::test]
async fn malformed_vault_value_is_rejected() {
    let bench = KmsPluginFixture::new(CiphertextLayout::OpenShift);
    for value in ["AAEC", "", "A=="] {
        bench.vault.inject_faults([FakeVaultFault::Value(value.to_owned())]);
        let error = bench.plugin.encrypt(b"seed", MINUTE).await.unwrap_err();
        assert!(matches!(error, KmsPluginError::Ciphertext(_)), "{value}: {error}");
    }
    for (layout, value) in
        [(CiphertextLayout::Upstream, "AAE="), (CiphertextLayout::OpenShift, "QUFFQw==")]
    {
        bench.vault.inject_faults([FakeVaultFault::Value(value.to_owned())]);
        let error = bench.plugin.decrypt(&vector_ciphertext(layout), MINUTE).await.unwrap_err();
        let told = format_error_chain(&error);
        assert!(told.starts_with("failed to base64 decode result, error: "), "{told}");
        assert!(!told.contains(value), "{told}");
    }
}

#[tokio::test]
async fn transient_errors_are_retried_within_deadline() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults([
        FakeVaultFault::Status(503),
        FakeVaultFault::Status(500),
        FakeVaultFault::Status(429),
    ]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    bench.run_with_clock(work).await.unwrap();
    assert_eq!(bench.vault.request_count(), 4);

    bench.vault.inject_faults((0..9).map(|_| FakeVaultFault::Status(503)));
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(1)).await };
    let error = bench.run_with_clock(work).await.unwrap_err();
    assert!(matches!(error, KmsPluginError::Encrypt(KeyOperationError::Failed { .. })), "{error}");
    assert!(bench.vault.request_count() - 4 <= 4, "{}", bench.vault.request_count());
}

#[tokio::test]
async fn hanging_vault_is_retried_within_deadline() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults([FakeVaultFault::NoReply]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(10)).await };
    bench.run_with_clock(work).await.unwrap();
    assert_eq!(bench.vault.request_count(), 2);

    bench.vault.inject_faults((0..9).map(|_| FakeVaultFault::NoReply));
    let plugin = bench.plugin.clone();
    let began = bench.plugin.clock().monotonic();
    let work = async move { plugin.encrypt(b"seed", Duration::from_secs(3)).await };
    let error = bench.run_with_clock(work).await.unwrap_err();
    assert!(
        matches!(error, KmsPluginError::Encrypt(KeyOperationError::TimedOut { .. })),
        "{error}"
    );
    let took = bench.plugin.clock().monotonic().saturating_sub(began);
    assert!(took <= Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn slow_vault_is_awaited_within_default_deadline() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench
        .vault
        .inject_faults([FakeVaultFault::DelayedReply(bench.clock.clone(), Duration::from_secs(2))]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    bench.run_with_clock(work).await.unwrap();
    assert_eq!(bench.vault.request_count(), 1);
}

#[tokio::test]
async fn token_timeout_is_reported_instead_of_vault() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults([FakeVaultFault::NoToken]);
    let plugin = bench.plugin.clone();
    let work = async move { plugin.encrypt(b"seed", Duration::from_millis(2_900)).await };
    let error = bench.run_with_clock(work).await.unwrap_err();
    assert_eq!(
        format_error_chain(&error),
        "failed to encrypt, error: no token for the vault within 2600 ms"
    );
    assert_eq!(error.label(), "token");
    let hint = error.hint().unwrap();
    assert!(hint.contains("Entra") && !hint.contains("firewall"), "{hint}");
    assert_eq!(bench.vault.request_count(), 0, "the vault was not asked");
}

#[tokio::test]
async fn longer_deadline_does_not_share_timeout_failure() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults([FakeVaultFault::NoReply]);
    let (hasty, patient) = (bench.plugin.clone(), bench.plugin.clone());
    let work = async move {
        let hasty = hasty.prove(Duration::from_millis(500));
        tokio::join!(hasty, patient.prove(MINUTE))
    };
    let (hasty, patient) = bench.run_with_clock(work).await;
    assert!(hasty.unwrap_err().is_timeout());
    patient.unwrap();
}

#[tokio::test]
async fn short_deadline_does_not_wait_for_running_proof() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.vault.inject_faults((0..9).map(|_| FakeVaultFault::NoReply));
    let (patient, hasty) = (bench.plugin.clone(), bench.plugin.clone());
    let clock = bench.clock.clone();
    let work = async move {
        let hasty = async {
            clock.sleep(Duration::from_secs(4)).await;
            let began = clock.monotonic();
            let outcome = hasty.prove(Duration::from_millis(2_900)).await;
            (outcome, clock.monotonic().saturating_sub(began))
        };
        tokio::join!(patient.prove(Duration::from_secs(20)), hasty)
    };
    let (patient, (hasty, took)) = bench.run_with_clock(work).await;
    assert!(patient.unwrap_err().is_timeout());
    let hasty = hasty.unwrap_err();
    assert_eq!(took, Duration::from_millis(2_900));
    assert!(hasty.is_timeout() && hasty.label() == "timed-out", "{hasty}");
    let told = format_error_chain(&*hasty);
    assert!(told.contains("within 2900 ms") && told.contains("began 6900 ms ago"), "{told}");
    assert!(hasty.hint().unwrap().contains("Entra"));
    assert_eq!(bench.vault.request_count(), 3, "the hasty one made no try of its own");
}

#[tokio::test]
async fn expired_deadline_sends_no_request() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let error = bench.plugin.prove(Duration::ZERO).await.unwrap_err();
    assert!(matches!(*error, KmsPluginError::ProofTimedOut { .. }), "{error}");
    assert_eq!(bench.vault.request_count(), 0);
}

#[tokio::test]
async fn only_successful_proof_is_cached() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    bench.plugin.prove(MINUTE).await.unwrap();
    bench.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(bench.vault.request_count(), 2, "one request each to encrypt and to decrypt");
    bench.clock.advance(KmsPlugin::PROOF_VALIDITY);
    bench.vault.inject_faults([FakeVaultFault::Status(403)]);
    assert!(bench.plugin.prove(MINUTE).await.is_err());
    bench.plugin.prove(MINUTE).await.unwrap();
    assert_eq!(bench.vault.request_count(), 5);
}

#[tokio::test]
async fn concurrent_callers_share_one_proof() {
    for instead in [None, Some(FakeVaultFault::Status(403))] {
        let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
        let requests = if instead.is_some() { 1 } else { 2 };
        bench.vault.inject_faults(instead);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let plugin = bench.plugin.clone();
            asking.spawn(async move { plugin.prove(MINUTE).await });
        }
        let mut good = 0;
        while let Some(asked) = asking.join_next().await {
            good += usize::from(asked.unwrap().is_ok());
        }
        assert_eq!(bench.vault.request_count(), requests);
        assert_eq!(good, if requests == 2 { 100 } else { 0 });
    }
}

#[tokio::test]
async fn wrong_decryption_fails_the_proof() {
    let bench = KmsPluginFixture::new(CiphertextLayout::Upstream);
    let other = CiphertextLayout::Upstream.encrypt_value(b"something else").to_string();
    bench.vault.inject_faults([FakeVaultFault::Kid(Some(
        "https://example.vault.azure.net/keys/mykey/ABCD",
    ))]);
    bench.vault.inject_faults([FakeVaultFault::Value(other)]);
    let error = bench.plugin.prove(MINUTE).await.unwrap_err();
    assert!(matches!(*error, KmsPluginError::ProofMismatch), "{error}");
}
