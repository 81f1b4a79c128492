//! One driver of upstream's, two providers: what ours puts into a volume is what upstream's does.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use tokio::sync::Mutex;

use super::stack::{Mounted, Stack, is_unknown_class, publish};
use super::{Stage, UPSTREAM, trial};
use crate::daemon::Daemon;
use crate::ground::Holder;
use crate::peers::{Rotation, RunningDriver};

/// Objects that both providers are asked for.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    holder: Holder,
    objects: &'static [&'static str],
}

const fn case(name: &'static str, holder: Holder, objects: &'static [&'static str]) -> Case {
    Case { name, holder, objects }
}

const CERTIFICATE: &str = "objectName: guest-certificate\nobjectType: secret";

const PLAIN: Case =
    case("a_plain_secret", Holder::Secret, &["objectName: guest-secret\nobjectType: secret"]);

const SAME: [Case; 14] = [
    PLAIN,
    case(
        "a_secret_by_workload_identity",
        Holder::Federated,
        &["objectName: guest-secret\nobjectType: secret"],
    ),
    case(
        "a_nested_alias_with_permissions",
        Holder::Secret,
        &["objectName: guest-secret\nobjectType: secret\nobjectAlias: a/b/c\nfilePermission: 0440"],
    ),
    case(
        "an_explicit_encoding",
        Holder::Secret,
        &["objectName: guest-secret\nobjectType: secret\nobjectEncoding: utf-8"],
    ),
    case("a_certificate_with_its_key_as_pem", Holder::Secret, &[CERTIFICATE]),
    case(
        "a_certificate_with_its_key_as_pfx",
        Holder::Secret,
        &["objectName: guest-certificate\nobjectType: secret\nobjectFormat: pfx"],
    ),
    case(
        "a_certificate_with_its_key_as_raw_pfx",
        Holder::Secret,
        &[
            "objectName: guest-certificate\nobjectType: secret\nobjectFormat: pfx\nobjectEncoding: base64",
        ],
    ),
    case(
        "a_certificate_that_the_vault_keeps_as_pem",
        Holder::Secret,
        &["objectName: guest-certificate-pem\nobjectType: secret"],
    ),
    case(
        "a_certificate_alone",
        Holder::Secret,
        &["objectName: guest-certificate\nobjectType: cert"],
    ),
    case("a_public_key", Holder::Secret, &["objectName: guest-certificate\nobjectType: key"]),
    case(
        "three_kinds_under_three_names",
        Holder::Secret,
        &[
            "objectName: guest-certificate\nobjectType: secret\nobjectAlias: tls.pem",
            "objectName: guest-certificate\nobjectType: cert\nobjectAlias: tls.crt",
            "objectName: guest-certificate\nobjectType: key\nobjectAlias: tls.pub",
        ],
    ),
    case(
        "space_around_the_words",
        Holder::Secret,
        &["objectName: '  guest-secret '\nobjectType: ' secret '"],
    ),
    case(
        "a_format_in_capitals",
        Holder::Secret,
        &["objectName: guest-certificate\nobjectType: secret\nobjectFormat: PFX"],
    ),
    case(
        "a_credential_by_managed_identity",
        Holder::ManagedIdentity,
        &["objectName: {component}\nobjectType: secret\nobjectEncoding: utf-8"],
    ),
];

/// What both must refuse.
const REFUSED: [Case; 6] = [
    case(
        "a_secret_that_does_not_exist",
        Holder::Secret,
        &["objectName: nobody\nobjectType: secret"],
    ),
    case(
        "a_secret_without_a_role",
        Holder::Secret,
        &["objectName: withheld-secret\nobjectType: secret"],
    ),
    case("a_kind_in_capitals", Holder::Secret, &["objectName: guest-secret\nobjectType: Secret"]),
    case(
        "a_path_out_of_the_volume",
        Holder::Secret,
        &["objectName: guest-secret\nobjectType: secret\nobjectAlias: ../x"],
    ),
    case(
        "an_encoding_of_a_certificate",
        Holder::Secret,
        &["objectName: guest-certificate\nobjectType: cert\nobjectEncoding: hex"],
    ),
    case(
        "text_that_is_no_base64",
        Holder::Secret,
        &["objectName: guest-secret\nobjectType: secret\nobjectEncoding: base64"],
    ),
];

/// The processes that all cases share.
struct Running {
    driver: RunningDriver,
    _providers: (Daemon, RunningDriver),
}

pub(super) fn trials(stage: &Arc<Stage>) -> Vec<Trial> {
    let running = Arc::new(Mutex::new(None));
    let good = SAME.into_iter().map(|case| (case, true));
    let bad = REFUSED.into_iter().map(|case| (case, false));
    good.chain(bad)
        .map(|(case, is_good)| {
            let running = Arc::clone(&running);
            let verb = if is_good { "is_the_same_by" } else { "is_refused_by" };
            let name = format!("interop::{}_{verb}_both_providers", case.name);
            trial(name, stage, async move |stage| {
                let stack = stage.stack("parity")?;
                let mut running = running.lock().await;
                let running = match &mut *running {
                    Some(running) => running,
                    none => none.insert(start(stage, &stack).await?),
                };
                if is_good {
                    same(&stack, running, case).await
                } else {
                    refused(&stack, running, case).await
                }
            })
        })
        .collect()
}

async fn start(stage: &Stage, stack: &Stack<'_>) -> Result<Running, Failed> {
    let upstream = stack.upstream_provider(UPSTREAM).await?;
    let ours = stack.lanyard(Rotation::Off).await?;
    let driver = stack.upstream_driver(&stage.programs.driver_1_6, Rotation::Off).await?;
    Ok(Running { driver, _providers: (upstream, ours) })
}

async fn same(stack: &Stack<'_>, running: &Running, case: Case) -> Result<(), Failed> {
    let theirs = mounted(stack, running, case, UPSTREAM).await?;
    let ours = mounted(stack, running, case, "azure").await?;
    if theirs.files.is_empty() || theirs.objects.is_empty() {
        return Err("upstream's provider filled nothing, so nothing was compared".into());
    }
    differences(&theirs, &ours)
}

async fn mounted(
    stack: &Stack<'_>,
    running: &Running,
    case: Case,
    provider: &str,
) -> Result<Mounted, Failed> {
    let volume = stack.volume(&object_name(case, provider), provider, case.holder, case.objects)?;
    let mounted = stack.mount(&running.driver.plugin, &volume).await;
    let unmounted = stack.unmount(&running.driver.plugin, &volume).await;
    volume.clear();
    let mounted = mounted.map_err(|error| of(provider, &error))?;
    unmounted.map_err(|error| of(provider, &error))?;
    Ok(mounted)
}

/// Refused for what is asked, and not because nobody answers: a plain secret is given afterwards.
async fn refused(stack: &Stack<'_>, running: &Running, case: Case) -> Result<(), Failed> {
    for provider in [UPSTREAM, "azure"] {
        let volume =
            stack.volume(&object_name(case, provider), provider, case.holder, case.objects)?;
        let answer = publish(&running.driver.plugin, &volume).await;
        volume.clear();
        match answer {
            Ok(()) => return Err(format!("{provider} filled the volume").into()),
            Err(error)
                if error.status.message().contains("provider not found")
                    || is_unknown_class(&error) =>
            {
                return Err(of(provider, &error.to_string().into()));
            }
            Err(_) => {}
        }
        mounted(stack, running, PLAIN, provider).await?;
    }
    Ok(())
}

/// What differs, without the values.
fn differences(theirs: &Mounted, ours: &Mounted) -> Result<(), Failed> {
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
        Err(format!("upstream's and ours: {}", found.join("; ")).into())
    }
}

fn object_name(case: Case, provider: &str) -> String {
    format!("{}-{provider}", case.name.replace('_', "-"))
}

fn of(provider: &str, error: &Failed) -> Failed {
    format!("{provider}: {}", error.message().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::volume::FileSeen;

    fn mounted(mode: u32, content: &str, version: &str) -> Mounted {
        let file = FileSeen { mode, content: content.as_bytes().to_vec() };
        Mounted {
            files: BTreeMap::from([("a".to_owned(), file)]),
            objects: vec![("secret/a".to_owned(), version.to_owned())],
        }
    }

    #[test]
    fn modes_contents_and_versions_are_compared_and_no_content_is_shown() {
        let theirs = mounted(0o644, "one", "1");
        assert!(differences(&theirs, &mounted(0o644, "one", "1")).is_ok());
        for other in
            [mounted(0o600, "one", "1"), mounted(0o644, "two", "1"), mounted(0o644, "one", "2")]
        {
            let found = differences(&theirs, &other).expect_err("they differ");
            let text = found.message().unwrap_or_default();
            assert!(!text.contains("one") && !text.contains("two"), "{text}");
        }
    }
}
