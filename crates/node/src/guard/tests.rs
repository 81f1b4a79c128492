use proptest::prelude::*;

use super::*;
use crate::provider::FilledFile;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn version(id: &str, version: &str) -> ObjectVersion {
    ObjectVersion { id: id.to_owned(), version: version.to_owned() }
}

fn credential(not_before: i64) -> Stamps {
    Stamps { not_before: Some(at(not_before)), is_credential: true, ..Stamps::default() }
}

/// A filling of one file for each object.
fn filling(objects: &[(&str, &str, Stamps)]) -> Filling {
    let file = |id: &str, version: &str| FilledFile {
        path: id.rsplit('/').next().unwrap().parse().unwrap(),
        mode: None,
        content: SecretBytes::from(format!("{id} {version}")),
        object: Some(id.to_owned()),
    };
    Filling {
        files: objects.iter().map(|(id, version, _)| file(id, version)).collect(),
        versions: objects.iter().map(|(id, it, _)| version(id, it)).collect(),
        stamps: objects.iter().map(|(id, _, stamps)| ((*id).to_owned(), *stamps)).collect(),
        stale: None,
    }
}

fn judged(mounted: Stamps, offered: Stamps) -> Judgement {
    let stamps = [("secret/cpo".to_owned(), mounted)].into();
    let filling = filling(&[("secret/cpo", "v2", offered)]);
    judge(&[version("secret/cpo", "v1")], &stamps, &filling, |_| false)
}

#[test]
fn only_a_credential_that_is_valid_from_an_earlier_time_on_is_refused() {
    let plain = |second| Stamps { is_credential: false, ..credential(second) };
    let undated = Stamps { is_credential: true, ..Stamps::default() };
    for (mounted, offered, is_refused) in [
        (credential(100), credential(99), true),
        (credential(100), credential(100), false),
        (credential(100), credential(101), false),
        (plain(100), plain(99), false),
        (credential(100), plain(99), false),
        (plain(100), credential(99), false),
        (credential(100), undated, false),
        (undated, credential(99), false),
    ] {
        let judgement = judged(mounted, offered);
        assert_eq!(judgement.refused.len(), usize::from(is_refused), "{mounted:?} {offered:?}");
        assert_eq!(judgement.accepted, []);
    }
}

#[test]
fn a_refusal_names_both_versions_and_the_annotation_that_accepts_the_older_one() {
    let judgement = judged(credential(100), credential(99));
    let refusal = judgement.refused[0].refusal();
    assert_eq!(refusal.code, OutcomeCode::CredentialOlder);
    for part in ["v1", "v2", "secret/cpo", "1970-01-01T00:01:39Z", "1970-01-01T00:01:40Z"] {
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    assert!(refusal.hint.contains("lanyard.dev/accept-older: \"secret/cpo@v2\""));
}

#[test]
fn the_exact_version_that_the_class_accepts_is_let_through() {
    let stamps = [("secret/cpo".to_owned(), credential(100))].into();
    let mounted = [version("secret/cpo", "v1")];
    let offered = filling(&[("secret/cpo", "v0", credential(50))]);
    for (accepted, is_accepted) in [("secret/cpo@v0", true), ("secret/cpo@v9", false)] {
        let judgement = judge(&mounted, &stamps, &offered, |older| older.to_string() == accepted);
        assert_eq!(judgement.accepted.len(), usize::from(is_accepted));
        assert_eq!(judgement.refused.len(), usize::from(!is_accepted));
    }
}

#[test]
fn an_older_credential_keeps_no_other_object_from_being_taken() {
    let mounted = [version("secret/cpo", "v1"), version("secret/nodepool", "v1")];
    let stamps = [
        ("secret/cpo".to_owned(), credential(100)),
        ("secret/nodepool".to_owned(), credential(100)),
    ]
    .into();
    let mut filling = filling(&[
        ("secret/cpo", "v0", credential(50)),
        ("secret/nodepool", "v2", credential(200)),
    ]);
    let judgement = judge(&mounted, &stamps, &filling, |_| false);
    assert_eq!(judgement.refused.len(), 1);

    let load = |path: &FilePath| Ok(Some(SecretBytes::from(format!("mounted {path}"))));
    keep_mounted(&mut filling, &judgement.refused, &stamps, load).unwrap();
    let contents: Vec<_> =
        filling.files.iter().map(|file| str::from_utf8(file.content.expose()).unwrap()).collect();
    assert_eq!(contents, ["mounted cpo", "secret/nodepool v2"]);
    assert_eq!(filling.versions, [version("secret/cpo", "v1"), version("secret/nodepool", "v2")]);
    assert_eq!(filling.stamps["secret/cpo"], credential(100));
    assert_eq!(filling.stamps["secret/nodepool"], credential(200));
}

#[test]
fn what_is_mounted_elsewhere_or_not_told_apart_holds_the_whole_volume_back() {
    let stamps = BTreeMap::from([("secret/cpo".to_owned(), credential(100))]);
    let refused = judged(credential(100), credential(50)).refused;
    let mut moved = filling(&[("secret/cpo", "v2", credential(50))]);
    let error = keep_mounted(&mut moved, &refused, &stamps, |_| Ok(None)).unwrap_err();
    assert!(matches!(error, KeepError::Moved { .. }), "{error}");

    let mut untold = filling(&[("secret/cpo", "v2", credential(50))]);
    untold.files[0].object = None;
    let error = keep_mounted(&mut untold, &refused, &stamps, |_| Ok(None)).unwrap_err();
    assert!(matches!(error, KeepError::NotTold { .. }), "{error}");
}

proptest! {
    #[test]
    fn what_was_taken_never_goes_back_in_time(offers in proptest::collection::vec(0_i64..100, 1..50)) {
        let mut mounted = credential(offers[0]);
        for offered in offers {
            if judged(mounted, credential(offered)).refused.is_empty() {
                prop_assert!(credential(offered).not_before >= mounted.not_before);
                mounted = credential(offered);
            }
        }
    }
}
