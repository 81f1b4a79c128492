use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Vec<VaultObjectEntry>, Vec<String>> {
    let mut problems = Vec::new();
    let entries = parse_objects(text, &mut problems);
    if problems.is_empty() {
        Ok(entries)
    } else {
        Err(problems.iter().map(ToString::to_string).collect())
    }
}

/// Returns an `objects` parameter with one entry, whose fields are `lines`.
fn objects_parameter(lines: &str) -> String {
    format!("array:\n  - |\n    {}\n", lines.replace('\n', "\n    "))
}

fn parse_single_entry(lines: &str) -> Result<VaultObjectEntry, Vec<String>> {
    parse(&objects_parameter(lines)).map(|mut entries| entries.remove(0))
}

fn parse_secret_entry(fields: &str) -> Result<VaultObjectEntry, Vec<String>> {
    parse_single_entry(&format!("objectName: n\nobjectType: secret\n{fields}"))
}

#[test]
fn scalars_keep_their_source_text() {
    let entry = parse_single_entry(
        "objectName: 123\nobjectType: secret\nobjectVersion: 0x1f\nfilePermission: 0644\nobjectAlias: true",
    )
    .unwrap();
    assert_eq!(entry.name.as_str(), "123");
    assert_eq!(entry.version.unwrap().as_str(), "0x1f");
    assert_eq!(entry.file_permission, Some(0o644));
    assert_eq!(entry.alias.unwrap().as_str(), "true");
}

#[test]
fn fields_are_trimmed_and_unknown_ones_ignored() {
    let entry = parse_single_entry("objectName: \"  a \"\nobjectType: ' cert '\nobjectFuture: [1]")
        .unwrap();
    assert_eq!((entry.name.as_str(), entry.kind), ("a", VaultObjectKind::Certificate));
}

#[test]
fn a_null_is_a_name_where_one_is_required_and_nothing_elsewhere() {
    let entry = parse_single_entry(
        "objectName: null\nobjectType: secret\nobjectVersion: null\nobjectAlias: ~",
    );
    let entry = entry.unwrap();
    assert_eq!(entry.name.as_str(), "null");
    assert_eq!((entry.version, entry.alias), (None, None));
    assert!(parse_single_entry("objectName:\nobjectType: secret").is_err());
}

#[test]
fn formats_and_encodings_are_read_in_any_case_and_types_are_not() {
    let entry = parse_secret_entry("objectFormat: PFX\nobjectEncoding: Base64").unwrap();
    assert_eq!(entry.format, Some(VaultObjectFormat::Pfx));
    assert_eq!(entry.encoding, Some(ObjectEncoding::Base64));
    for kind in ["Secret", "certificate", "", "keys"] {
        assert!(
            parse_single_entry(&format!("objectName: n\nobjectType: {kind}")).is_err(),
            "{kind}"
        );
    }
}

#[test]
fn pfx_and_encodings_are_for_secrets_only_in_any_case() {
    for fields in ["objectFormat: PFX", "objectEncoding: UTF-8"] {
        for kind in ["key", "cert"] {
            let refused =
                parse_single_entry(&format!("objectName: n\nobjectType: {kind}\n{fields}"));
            assert!(refused.is_err(), "{kind} {fields}");
        }
    }
    assert!(parse_single_entry("objectName: n\nobjectType: cert\nobjectFormat: pem").is_ok());
}

#[test]
fn a_file_permission_that_is_not_octal_is_refused_instead_of_becoming_zero() {
    for (text, mode) in [("0644", 0o644), ("400", 0o400), ("\"0777\"", 0o777), ("0", 0)] {
        assert_eq!(
            parse_secret_entry(&format!("filePermission: {text}")).unwrap().file_permission,
            Some(mode)
        );
    }
    for text in ["0900", "rw", "0o644", "01000", "-1", "+644"] {
        let problems = parse_secret_entry(&format!("filePermission: {text}")).unwrap_err();
        assert!(problems[0].starts_with("objects[0].filePermission: "), "{problems:?}");
    }
}

#[test]
fn a_history_of_one_or_less_is_a_single_version() {
    for (text, history) in [("0", 1), ("-3", 1), ("1", 1), ("5", 5), ("\"2\"", 2)] {
        let entry = parse_secret_entry(&format!("objectVersionHistory: {text}")).unwrap();
        assert_eq!(entry.history_length, history, "{text}");
    }
    assert_eq!(parse_secret_entry("objectVersionHistory: 2").unwrap().paths(), ["n/0", "n/1"]);
    for text in ["many", "1.5", "99999999999"] {
        assert!(parse_secret_entry(&format!("objectVersionHistory: {text}")).is_err(), "{text}");
    }
}

#[test]
fn file_names_stay_inside_the_mount() {
    for alias in ["a", "dir/tls.crt", "deep/er/x.y", "with blank"] {
        let entry = parse_secret_entry(&format!("objectAlias: {alias}")).unwrap();
        assert_eq!(entry.file_name(), alias);
    }
    for alias in ["/etc/passwd", "../x", "a/../b", "a..b", "a//b", "a/", "./a", "\"a\\nb\""] {
        assert!(parse_secret_entry(&format!("objectAlias: {alias}")).is_err(), "{alias}");
    }
}

#[test]
fn two_objects_cannot_write_the_same_path() {
    let object = |name: &str, more: &str| {
        format!("  - |\n    objectName: {name}\n    objectType: secret\n{more}")
    };
    let collide = [
        (object("a", ""), object("b", "    objectAlias: a\n")),
        (object("a", ""), object("b", "    objectAlias: a/x\n")),
        (object("a", "    objectVersionHistory: 2\n"), object("b", "    objectAlias: a/1\n")),
    ];
    for (one, two) in collide {
        let problems = parse(&format!("array:\n{one}{two}")).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("objects[1].objectAlias: "), "{problems:?}");
    }
    let apart =
        (object("a", "    objectVersionHistory: 2\n"), object("b", "    objectAlias: a/2\n"));
    assert!(parse(&format!("array:\n{}{}", apart.0, apart.1)).is_ok());
}

#[test]
fn collision_names_the_first_conflicting_entry() {
    let aliases = ["a/b", "c", "a-b", "a", "c/d", "a/b/c", "a/b-c"];
    let entries = aliases.map(|alias| {
        format!("  - |\n    objectName: n\n    objectType: secret\n    objectAlias: {alias}\n")
    });
    let problems = parse(&format!("array:\n{}", entries.concat())).unwrap_err();
    let expected = [
        "objects[3].objectAlias: its file `a` collides with objects[0]",
        "objects[4].objectAlias: its file `c/d` collides with objects[1]",
        "objects[5].objectAlias: its file `a/b/c` collides with objects[0]",
        "objects[6].objectAlias: its file `a/b-c` collides with objects[3]",
    ];
    assert_eq!(problems, expected);
}

fn objects_parameter_of(count: usize, fields: impl Fn(usize) -> String) -> String {
    let entries = (0..count).map(|index| {
        let fields = fields(index);
        format!("  - |\n    objectName: n{index}\n    objectType: secret\n    {fields}\n")
    });
    format!("array:\n{}", entries.collect::<String>())
}

#[test]
fn oversized_parameters_are_rejected_before_parsing() {
    let plain = |_| String::new();
    assert_eq!(parse(&objects_parameter_of(500, plain)).unwrap().len(), 500);
    assert_eq!(
        parse(&objects_parameter_of(501, plain)).unwrap_err(),
        ["`objects` has 501 entries; the maximum is 500"]
    );
    let versions = |_| "objectVersionHistory: 1000".to_owned();
    assert_eq!(parse(&objects_parameter_of(4, versions)).unwrap().len(), 4);
    assert_eq!(
        parse(&objects_parameter_of(500, versions)).unwrap_err(),
        ["`objects` has 500000 files to write; the maximum is 4096"]
    );
    let text = format!("array:\n# {}\n", "x".repeat(256 * 1024));
    let problems = parse(&text).unwrap_err();
    assert!(problems[0].ends_with("bytes; the maximum is 262144"), "{problems:?}");
}

#[test]
fn excess_problems_are_counted_and_long_reasons_truncated() {
    let problems =
        parse(&objects_parameter_of(500, |_| "filePermission: rw".to_owned())).unwrap_err();
    assert_eq!(problems.len(), 21);
    assert_eq!(problems[20], "`objects` has 480 more problems");
    let problems =
        parse_secret_entry(&format!("filePermission: {}", "é".repeat(50_000))).unwrap_err();
    assert!(problems[0].len() < 600, "{}", problems[0].len());
}

#[test]
fn texts_without_a_list_of_texts_are_refused_with_their_place() {
    let cases = [
        ("", "`objects` is not set"),
        ("array: []", "`objects` cannot be read: the list `array` is empty"),
        ("array:", "`objects` cannot be read: the list `array` is empty"),
        ("array: x", "`objects` cannot be read: `array` is a scalar and not a list"),
        ("- x", "`objects` cannot be read: it is a list and not a mapping with the key `array`"),
        ("other: 1", "`objects` cannot be read: it has no key `array`"),
        (
            "array:\n  - objectName: n\n",
            "objects[0]: it is a mapping and not a string; write `- |` before the fields",
        ),
        ("array:\n  - plain\n", "objects[0]: it holds a scalar and not a mapping"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap_err(), [expected], "{text:?}");
    }
    let broken = parse("array:\n  - |\n    objectName: [\n").unwrap_err();
    assert!(broken[0].starts_with("objects[0]: it is not YAML: line "), "{broken:?}");
}

fn encodings() -> impl Strategy<Value = ObjectEncoding> {
    prop::sample::select(ObjectEncoding::ALL.to_vec())
}

/// Generates names that the HostedCluster schema accepts; names that YAML could misread are
/// frequent.
fn names() -> impl Strategy<Value = SecretName> {
    let treacherous = [
        "true",
        "null",
        "Null",
        "NULL",
        "123",
        "1e5",
        "0x1f",
        "no",
        "on",
        "y",
        "0644",
        "-1",
        "-",
        "--",
        "---",
        "1-2-3",
        "NaN",
        "0b1",
        "2026-11-21",
    ];
    prop_oneof![
        prop::sample::select(treacherous.map(str::to_owned).to_vec()),
        "[a-zA-Z0-9-]{1,127}"
    ]
    .prop_map(|text| text.parse().unwrap())
}

prop_compose! {
    fn entries()(
        name in names(),
        alias in prop::option::of("[a-zA-Z0-9'\"#: ]{0,6}[a-z0-9]"),
        version in prop::option::of("[a-zA-Z0-9-]{1,32}"),
        history in 1..9_u32,
        format in prop::option::of(prop::sample::select(VaultObjectFormat::ALL.to_vec())),
        encoding in prop::option::of(encodings()),
        file_permission in prop::option::of(0..=0o777_u32),
    ) -> VaultObjectEntry {
        VaultObjectEntry {
            name,
            kind: VaultObjectKind::Secret,
            alias: alias.map(|alias| alias.trim().parse().unwrap()),
            version: version.map(|version| version.parse().unwrap()),
            history_length: history,
            format,
            encoding,
            file_permission,
        }
    }
}

proptest! {
    #[test]
    fn secret_entry_survives_a_round_trip(name in names(), encoding in encodings()) {
        let written = vec![VaultObjectEntry::secret(name.clone(), Some(encoding))];
        let text = render_objects(&written);
        let scalar = if name.as_str() == "-" { "'-'" } else { name.as_str() };
        prop_assert_eq!(
            &text,
            &format!("\narray:\n  - |\n    objectName: {scalar}\n    objectEncoding: {encoding}\n    objectType: secret\n")
        );
        let read = parse(text.trim()).unwrap();
        prop_assert_eq!(&read, &written);
        prop_assert_eq!(render_objects(&read), text);
    }

    #[test]
    fn every_field_of_an_entry_survives_a_round_trip(entry in entries()) {
        let text = render_objects(std::slice::from_ref(&entry));
        prop_assert_eq!(parse(&text).unwrap(), vec![entry]);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\PC\n]{0,80}") {
        drop(parse(&text));
        drop(parse_single_entry(&text));
    }
}
