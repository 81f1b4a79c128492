//! Trials of both providers with upstream's driver: lanyard's provider must fill a volume as upstream's does.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use tokio::sync::Mutex;

use super::case_fixture::{
    InteropCaseFixture, MountedContents, is_unknown_class_error, publish_known_class,
};
use super::{InteropSuiteFixture, UPSTREAM_PROVIDER_NAME, trial};
use crate::daemon::Daemon;
use crate::driver_processes::{DriverRotation, RunningDriver};
use crate::sign_in_method::SignInMethod;

/// Objects that both providers must fetch alike, or both refuse.
#[derive(Debug, Clone, Copy)]
struct ParityCase {
    name: &'static str,
    sign_in: SignInMethod,
    objects: &'static [&'static str],
}

const fn parity_case(
    name: &'static str,
    holder: SignInMethod,
    objects: &'static [&'static str],
) -> ParityCase {
    ParityCase { name, sign_in: holder, objects }
}

const CERTIFICATE: &str = "objectName: test-certificate\nobjectType: secret";

const PLAIN_SECRET_CASE: ParityCase = parity_case(
    "a_plain_secret",
    SignInMethod::Secret,
    &["objectName: test-secret\nobjectType: secret"],
);

const EQUAL_CASES: [ParityCase; 14] = [
    PLAIN_SECRET_CASE,
    parity_case(
        "a_secret_by_workload_identity",
        SignInMethod::Federated,
        &["objectName: test-secret\nobjectType: secret"],
    ),
    parity_case(
        "a_nested_alias_with_permissions",
        SignInMethod::Secret,
        &["objectName: test-secret\nobjectType: secret\nobjectAlias: a/b/c\nfilePermission: 0440"],
    ),
    parity_case(
        "an_explicit_encoding",
        SignInMethod::Secret,
        &["objectName: test-secret\nobjectType: secret\nobjectEncoding: utf-8"],
    ),
    parity_case("a_certificate_with_its_key_as_pem", SignInMethod::Secret, &[CERTIFICATE]),
    parity_case(
        "a_certificate_with_its_key_as_pfx",
        SignInMethod::Secret,
        &["objectName: test-certificate\nobjectType: secret\nobjectFormat: pfx"],
    ),
    parity_case(
        "a_certificate_with_its_key_as_raw_pfx",
        SignInMethod::Secret,
        &[
            "objectName: test-certificate\nobjectType: secret\nobjectFormat: pfx\nobjectEncoding: base64",
        ],
    ),
    parity_case(
        "a_certificate_stored_as_pem",
        SignInMethod::Secret,
        &["objectName: test-certificate-pem\nobjectType: secret"],
    ),
    parity_case(
        "a_certificate_alone",
        SignInMethod::Secret,
        &["objectName: test-certificate\nobjectType: cert"],
    ),
    parity_case(
        "a_public_key",
        SignInMethod::Secret,
        &["objectName: test-certificate\nobjectType: key"],
    ),
    parity_case(
        "three_object_types_with_aliases",
        SignInMethod::Secret,
        &[
            "objectName: test-certificate\nobjectType: secret\nobjectAlias: tls.pem",
            "objectName: test-certificate\nobjectType: cert\nobjectAlias: tls.crt",
            "objectName: test-certificate\nobjectType: key\nobjectAlias: tls.pub",
        ],
    ),
    parity_case(
        "parameters_with_surrounding_spaces",
        SignInMethod::Secret,
        &["objectName: '  test-secret '\nobjectType: ' secret '"],
    ),
    parity_case(
        "a_format_in_capitals",
        SignInMethod::Secret,
        &["objectName: test-certificate\nobjectType: secret\nobjectFormat: PFX"],
    ),
    parity_case(
        "a_credential_by_managed_identity",
        SignInMethod::ManagedIdentity,
        &["objectName: {component}\nobjectType: secret\nobjectEncoding: utf-8"],
    ),
];

/// Cases that both providers must refuse.
const REFUSED_CASES: [ParityCase; 6] = [
    parity_case(
        "a_secret_that_does_not_exist",
        SignInMethod::Secret,
        &["objectName: absent\nobjectType: secret"],
    ),
    parity_case(
        "a_secret_without_a_role",
        SignInMethod::Secret,
        &["objectName: withheld-secret\nobjectType: secret"],
    ),
    parity_case(
        "an_object_type_in_capitals",
        SignInMethod::Secret,
        &["objectName: test-secret\nobjectType: Secret"],
    ),
    parity_case(
        "a_path_out_of_the_volume",
        SignInMethod::Secret,
        &["objectName: test-secret\nobjectType: secret\nobjectAlias: ../x"],
    ),
    parity_case(
        "an_encoding_of_a_certificate",
        SignInMethod::Secret,
        &["objectName: test-certificate\nobjectType: cert\nobjectEncoding: hex"],
    ),
    parity_case(
        "an_invalid_base64_value",
        SignInMethod::Secret,
        &["objectName: test-secret\nobjectType: secret\nobjectEncoding: base64"],
    ),
];

/// Processes that all cases share.
struct ParityProcesses {
    driver: RunningDriver,
    _providers: (Daemon, RunningDriver),
}

pub(super) fn trials(fixture: &Arc<InteropSuiteFixture>) -> Vec<Trial> {
    let running = Arc::new(Mutex::new(None));
    let good = EQUAL_CASES.into_iter().map(|case| (case, true));
    let bad = REFUSED_CASES.into_iter().map(|case| (case, false));
    good.chain(bad)
        .map(|(case, is_good)| {
            let running = Arc::clone(&running);
            let verb = if is_good { "is_equal_with" } else { "is_refused_by" };
            let name = format!("interop::{}_{verb}_both_providers", case.name);
            trial(name, fixture, async move |fixture| {
                let case_fixture = fixture.case_fixture("parity")?;
                let mut running = running.lock().await;
                let running = match &mut *running {
                    Some(running) => running,
                    none => none.insert(start_processes(fixture, &case_fixture).await?),
                };
                if is_good {
                    expect_equal_volumes(&case_fixture, running, case).await
                } else {
                    expect_refused_by_both(&case_fixture, running, case).await
                }
            })
        })
        .collect()
}

async fn start_processes(
    fixture: &InteropSuiteFixture,
    case_fixture: &InteropCaseFixture<'_>,
) -> Result<ParityProcesses, Failed> {
    let upstream = case_fixture.start_upstream_provider(UPSTREAM_PROVIDER_NAME).await?;
    let ours = case_fixture.start_lanyard_node(DriverRotation::Disabled).await?;
    let driver = case_fixture
        .start_upstream_driver(&fixture.programs.driver_1_6, DriverRotation::Disabled)
        .await?;
    Ok(ParityProcesses { driver, _providers: (upstream, ours) })
}

async fn expect_equal_volumes(
    case_fixture: &InteropCaseFixture<'_>,
    running: &ParityProcesses,
    case: ParityCase,
) -> Result<(), Failed> {
    let theirs = mount_and_unmount(case_fixture, running, case, UPSTREAM_PROVIDER_NAME).await?;
    let ours = mount_and_unmount(case_fixture, running, case, "azure").await?;
    if theirs.files.is_empty() || theirs.objects.is_empty() {
        return Err("upstream's provider returned no files, so nothing was compared".into());
    }
    expect_equal_contents(&theirs, &ours)
}

async fn mount_and_unmount(
    case_fixture: &InteropCaseFixture<'_>,
    running: &ParityProcesses,
    case: ParityCase,
    provider: &str,
) -> Result<MountedContents, Failed> {
    let mut volume = case_fixture.create_class_and_volume(
        &test_object_name(case, provider),
        provider,
        case.sign_in,
        case.objects,
    )?;
    case_fixture.create_pod(&mut volume)?;
    let mounted = case_fixture.mount_and_read(&running.driver.client, &volume).await;
    let unmounted = case_fixture.unmount_and_expect_empty(&running.driver.client, &volume).await;
    let deleted = case_fixture.delete_pod(&volume);
    volume.remove_directory();
    let mounted = mounted.map_err(|error| error_of_provider(provider, &error))?;
    unmounted.and(deleted).map_err(|error| error_of_provider(provider, &error))?;
    Ok(mounted)
}

/// Expects that both providers refuse the objects. A plain secret afterwards proves that they still respond.
async fn expect_refused_by_both(
    case_fixture: &InteropCaseFixture<'_>,
    running: &ParityProcesses,
    case: ParityCase,
) -> Result<(), Failed> {
    for provider in [UPSTREAM_PROVIDER_NAME, "azure"] {
        let volume = case_fixture.create_class_and_volume(
            &test_object_name(case, provider),
            provider,
            case.sign_in,
            case.objects,
        )?;
        let answer = publish_known_class(&running.driver.client, &volume).await;
        volume.remove_directory();
        match answer {
            Ok(()) => return Err(format!("{provider} filled the volume").into()),
            Err(error)
                if error.status.message().contains("provider not found")
                    || is_unknown_class_error(&error) =>
            {
                return Err(error_of_provider(provider, &error.to_string().into()));
            }
            Err(_) => {}
        }
        mount_and_unmount(case_fixture, running, PLAIN_SECRET_CASE, provider).await?;
    }
    Ok(())
}

/// Compares two volumes. The error omits file contents.
fn expect_equal_contents(theirs: &MountedContents, ours: &MountedContents) -> Result<(), Failed> {
    let mut found = Vec::new();
    let names: Vec<_> = theirs.files.keys().collect();
    if names != ours.files.keys().collect::<Vec<_>>() {
        found.push(format!("files {names:?} and {:?}", ours.files.keys().collect::<Vec<_>>()));
    }
    for (name, file) in &theirs.files {
        match ours.files.get(name) {
            Some(other) if other.mode != file.mode => {
                found.push(format!("{name}: modes {:04o} and {:04o}", file.mode, other.mode));
            }
            Some(other) if other.content != file.content => {
                let (one, another) = (file.content.len(), other.content.len());
                found.push(format!("{name}: contents of {one} and {another} bytes"));
            }
            _ => {}
        }
    }
    if theirs.objects != ours.objects {
        found.push(format!("objects {:?} and {:?}", theirs.objects, ours.objects));
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(format!("upstream's and lanyard's: {}", found.join("; ")).into())
    }
}

fn test_object_name(case: ParityCase, provider: &str) -> String {
    format!("{}-{provider}", case.name.replace('_', "-"))
}

fn error_of_provider(provider: &str, error: &Failed) -> Failed {
    format!("{provider}: {}", error.message().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::volume::VolumeFile;

    fn volume_contents(mode: u32, content: &str, version: &str) -> MountedContents {
        let file = VolumeFile { mode, content: content.as_bytes().to_vec() };
        MountedContents {
            files: BTreeMap::from([("a".to_owned(), file)]),
            objects: vec![("secret/a".to_owned(), version.to_owned())],
        }
    }

    #[test]
    fn modes_contents_and_versions_are_compared_and_no_content_is_shown() {
        let theirs = volume_contents(0o644, "one", "1");
        assert!(expect_equal_contents(&theirs, &volume_contents(0o644, "one", "1")).is_ok());
        for other in [
            volume_contents(0o600, "one", "1"),
            volume_contents(0o644, "two", "1"),
            volume_contents(0o644, "one", "2"),
        ] {
            let found = expect_equal_contents(&theirs, &other).expect_err("they differ");
            let text = found.message().unwrap_or_default();
            assert!(!text.contains("one") && !text.contains("two"), "{text}");
        }
    }
}
