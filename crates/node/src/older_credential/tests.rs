use lanyard_provider::ProviderFile;
use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn version(id: &str, version: &str) -> ProviderObjectVersion {
    ProviderObjectVersion { id: id.to_owned(), version: version.to_owned() }
}

fn credential_timestamps(not_before: i64) -> ObjectTimestamps {
    ObjectTimestamps {
        not_before: Some(at(not_before)),
        is_credential: true,
        ..ObjectTimestamps::default()
    }
}

/// A provider response with one file for each object.
fn response_with_objects(objects: &[(&str, &str, ObjectTimestamps)]) -> ProviderResponse {
    let file = |id: &str, version: &str| ProviderFile {
        path: id.rsplit('/').next().unwrap().parse().unwrap(),
        mode: None,
        content: SharedSecretBytes::from(format!("{id} {version}")),
        object: Some(id.to_owned()),
    };
    ProviderResponse {
        files: objects.iter().map(|(id, version, _)| file(id, version)).collect(),
        versions: objects.iter().map(|(id, it, _)| version(id, it)).collect(),
        timestamps: objects
            .iter()
            .map(|(id, _, timestamps)| ((*id).to_owned(), *timestamps))
            .collect(),
        warnings: Vec::new(),
        stale: None,
    }
}

fn check_credential(mounted: ObjectTimestamps, offered: ObjectTimestamps) -> OlderCredentialCheck {
    let timestamps = [("secret/cpo".to_owned(), mounted)].into();
    let response = response_with_objects(&[("secret/cpo", "v2", offered)]);
    find_older_credentials(&[version("secret/cpo", "v1")], &timestamps, &response, |_| false)
}

#[test]
fn only_a_credential_that_is_valid_from_an_earlier_time_on_is_refused() {
    let plain = |second| ObjectTimestamps { is_credential: false, ..credential_timestamps(second) };
    let undated = ObjectTimestamps { is_credential: true, ..ObjectTimestamps::default() };
    for (mounted, offered, is_refused) in [
        (credential_timestamps(100), credential_timestamps(99), true),
        (credential_timestamps(100), credential_timestamps(100), false),
        (credential_timestamps(100), credential_timestamps(101), false),
        (plain(100), plain(99), false),
        (credential_timestamps(100), plain(99), false),
        (plain(100), credential_timestamps(99), false),
        (credential_timestamps(100), undated, false),
        (undated, credential_timestamps(99), false),
    ] {
        let check = check_credential(mounted, offered);
        assert_eq!(check.refused.len(), usize::from(is_refused), "{mounted:?} {offered:?}");
        assert_eq!(check.accepted, []);
    }
}

#[test]
fn a_refusal_names_both_versions_and_the_annotation_that_accepts_the_older_one() {
    let check = check_credential(credential_timestamps(100), credential_timestamps(99));
    let error = check.refused[0].to_error();
    assert_eq!(error.code, OutcomeCode::CredentialOlder);
    for part in ["v1", "v2", "secret/cpo", "1970-01-01T00:01:39Z", "1970-01-01T00:01:40Z"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert!(error.hint.contains("lanyard.dev/accept-older: \"secret/cpo@v2\""));
}

#[test]
fn the_exact_version_that_the_class_accepts_is_let_through() {
    let timestamps = [("secret/cpo".to_owned(), credential_timestamps(100))].into();
    let mounted = [version("secret/cpo", "v1")];
    let offered = response_with_objects(&[("secret/cpo", "v0", credential_timestamps(50))]);
    for (accepted, is_accepted) in [("secret/cpo@v0", true), ("secret/cpo@v9", false)] {
        let check = find_older_credentials(&mounted, &timestamps, &offered, |older| {
            older.to_string() == accepted
        });
        assert_eq!(check.accepted.len(), usize::from(is_accepted));
        assert_eq!(check.refused.len(), usize::from(!is_accepted));
    }
}

#[test]
fn an_older_credential_keeps_no_other_object_from_being_taken() {
    let mounted = [version("secret/cpo", "v1"), version("secret/nodepool", "v1")];
    let timestamps = [
        ("secret/cpo".to_owned(), credential_timestamps(100)),
        ("secret/nodepool".to_owned(), credential_timestamps(100)),
    ]
    .into();
    let mut response = response_with_objects(&[
        ("secret/cpo", "v0", credential_timestamps(50)),
        ("secret/nodepool", "v2", credential_timestamps(200)),
    ]);
    let check = find_older_credentials(&mounted, &timestamps, &response, |_| false);
    assert_eq!(check.refused.len(), 1);

    let load = |path: &FilePath| Ok(Some(SharedSecretBytes::from(format!("mounted {path}"))));
    restore_mounted_objects(&mut response, &check.refused, &timestamps, load).unwrap();
    let contents: Vec<_> =
        response.files.iter().map(|file| str::from_utf8(file.content.expose()).unwrap()).collect();
    assert_eq!(contents, ["mounted cpo", "secret/nodepool v2"]);
    assert_eq!(response.versions, [version("secret/cpo", "v1"), version("secret/nodepool", "v2")]);
    assert_eq!(response.timestamps["secret/cpo"], credential_timestamps(100));
    assert_eq!(response.timestamps["secret/nodepool"], credential_timestamps(200));
}

#[test]
fn changed_or_unknown_paths_reject_the_whole_response() {
    let timestamps = BTreeMap::from([("secret/cpo".to_owned(), credential_timestamps(100))]);
    let refused = check_credential(credential_timestamps(100), credential_timestamps(50)).refused;
    let mut moved = response_with_objects(&[("secret/cpo", "v2", credential_timestamps(50))]);
    let error =
        restore_mounted_objects(&mut moved, &refused, &timestamps, |_| Ok(None)).unwrap_err();
    assert!(matches!(error, RestoreMountedError::PathChanged { .. }), "{error}");

    let mut without_object =
        response_with_objects(&[("secret/cpo", "v2", credential_timestamps(50))]);
    without_object.files[0].object = None;
    let error = restore_mounted_objects(&mut without_object, &refused, &timestamps, |_| Ok(None))
        .unwrap_err();
    assert!(matches!(error, RestoreMountedError::UnknownFiles { .. }), "{error}");
}

proptest! {
    #[test]
    fn accepted_credentials_never_go_back_in_time(offers in proptest::collection::vec(0_i64..100, 1..50)) {
        let mut mounted = credential_timestamps(offers[0]);
        for offered in offers {
            if check_credential(mounted, credential_timestamps(offered)).refused.is_empty() {
                prop_assert!(credential_timestamps(offered).not_before >= mounted.not_before);
                mounted = credential_timestamps(offered);
            }
        }
    }
}
