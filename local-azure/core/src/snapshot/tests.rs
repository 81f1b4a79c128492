use std::collections::BTreeMap;

use lanyard_emulator_state::table::RowChange;
use lanyard_emulator_state::testing::azure_with_test_principals;
use uuid::Uuid;

use super::*;

/// Every stored row.
fn stored_rows(azure: &mut AzureState) -> BTreeMap<(&'static str, String), Vec<u8>> {
    let mut rows = BTreeMap::new();
    azure.for_each_table(&mut |name, table| {
        table.mark_all_changed();
        for RowChange { table, key, row } in table.take_changes(name).unwrap() {
            rows.extend(row.map(|row| ((table, key), row.to_vec())));
        }
    });
    rows
}

#[test]
fn json_form_keeps_every_row_and_the_generator() {
    let mut azure = azure_with_test_principals();
    let mut ids = IdGenerator::seeded(Uuid::from_u128(3));
    ids.generate_rsa_key().unwrap();
    let json = StateSnapshot::of_state(&azure, &ids).to_json().unwrap();
    let mut parsed = StateSnapshot::from_json(&json).unwrap();
    let expected = stored_rows(&mut azure);
    assert!(expected.len() > 10, "{}", expected.len());
    assert_eq!(stored_rows(&mut parsed.azure), expected);
    assert_eq!(parsed.ids, ids);
    assert_eq!(parsed.to_json().unwrap(), json);
}

#[test]
fn invalid_snapshot_is_rejected_without_its_values() {
    let snapshot = StateSnapshot::of_state(&azure_with_test_principals(), &IdGenerator::Random);
    let json = String::from_utf8(snapshot.to_json().unwrap()).unwrap();
    let format = |number| format!("\"format\":{number}");
    for other in [FORMAT - 1, FORMAT + 1] {
        let other_json = json.replacen(&format(FORMAT), &format(other), 1);
        let error = StateSnapshot::from_json(other_json.as_bytes()).unwrap_err();
        assert!(matches!(error, SnapshotError::OtherFormat { found } if found == other), "{error}");
    }
    for other in ["{}", "[]", r#"{"format":"1"}"#, "7"] {
        let error = StateSnapshot::from_json(other.as_bytes()).unwrap_err();
        assert!(matches!(error, SnapshotError::NotSnapshot), "{other}: {error}");
    }
    let without_state = format!("{{{},\"azure\":\"secret\"}}", format(FORMAT));
    for invalid in ["", &json[..json.len() - 1], &without_state] {
        let error = StateSnapshot::from_json(invalid.as_bytes()).unwrap_err();
        assert!(matches!(error, SnapshotError::Invalid { .. }), "{error}");
        assert!(!error.to_string().contains("secret"));
    }
    assert_eq!(format!("{snapshot:?}"), "StateSnapshot { .. }");
}
