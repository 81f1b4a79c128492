use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::creation_evidence::CreationEvidence;
use crate::resource_key::{Ownership, ResourceKey};

const AT: Timestamp = Timestamp::UNIX_EPOCH;
const INFRA: StackName = StackName::new("infra");

/// Groups and networks of the subscription, and role assignments everywhere.
fn is_network(_stack: &StackName, id: &ResourceId, subscription: &str) -> bool {
    let text = id.as_str();
    let is_role = text.contains("/roleAssignments/");
    let is_known = !text.contains("/providers/") || text.contains("/Microsoft.Network/");
    is_role || (is_known && text.starts_with(&format!("/subscriptions/{subscription}/")))
}

async fn open(path: PathBuf, cluster: &JournalCluster) -> Result<Journal, JournalError> {
    open_directory(path, cluster, is_network).await
}

fn cluster() -> JournalCluster {
    JournalCluster {
        name: "harbour".to_owned(),
        infra_id: "harbour-x7k2p".to_owned(),
        subscription: "s".to_owned(),
    }
}

fn writing(key: &str, write: WriteKind, before: Option<serde_json::Value>) -> JournalEntry {
    JournalEntry::Writing {
        at: AT,
        key: ResourceKey::new(key),
        stack: INFRA,
        id: format!("/subscriptions/s/resourceGroups/{key}").parse().unwrap(),
        write,
        depends_on: Vec::new(),
        before,
        desired: None,
    }
}

fn recorded(key: &str, ownership: Ownership) -> JournalEntry {
    JournalEntry::Recorded {
        at: AT,
        key: ResourceKey::new(key),
        stack: INFRA,
        id: format!("/subscriptions/s/resourceGroups/{key}").parse().unwrap(),
        ownership,
        depends_on: Vec::new(),
        created: None,
    }
}

fn removed(key: &str) -> JournalEntry {
    JournalEntry::Removed { at: AT, key: ResourceKey::new(key) }
}

fn started(command: RunCommand) -> JournalEntry {
    let (stacks, caller) = (vec![INFRA], Vec::new());
    JournalEntry::RunStarted { at: AT, command, stacks, caller }
}

fn ended() -> JournalEntry {
    JournalEntry::RunEnded { at: AT, stacks: vec![INFRA] }
}

/// What undoes the unfinished run of the stack `infra`; `None` if there is none.
fn undo_actions(entries: &[JournalEntry]) -> Option<Vec<(String, UndoAction)>> {
    let mut state = RecordedState::default();
    for entry in entries {
        state.apply(entry);
    }
    let run = state.unfinished_run(&INFRA)?;
    Some(run.changes.iter().map(|(key, it)| (key.to_string(), it.undo.clone())).collect())
}

#[tokio::test]
async fn entries_survive_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let journal = open(path.clone(), &cluster()).await.unwrap();
    let entries = [
        started(RunCommand::Apply),
        writing("g", WriteKind::Create, None),
        recorded("g", Ownership::Created),
        writing("u", WriteKind::Update, Some(json!({ "tags": { "a": "b" } }))),
    ];
    for entry in &entries {
        journal.record(entry).await.unwrap();
    }
    let state = journal.state();
    journal.close().await.unwrap();
    let journal = open(path, &cluster()).await.unwrap();
    assert_eq!(journal.state(), state);
    assert!(state.unfinished_run(&INFRA).is_some());
    assert!(state.unfinished_run(&StackName::new("iam")).is_none());
}

#[tokio::test]
async fn journal_of_format_1_is_opened_and_continued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let content = r#"{"entry":"cluster","version":1,"name":"harbour","infraId":"harbour-x7k2p","subscription":"s"}
{"entry":"writing","at":"2026-11-21T12:00:00Z","key":"g","stack":"infra","id":"/subscriptions/s/resourceGroups/g","write":"create"}
{"entry":"recorded","at":"2026-11-21T12:00:01Z","key":"g","stack":"infra","id":"/subscriptions/s/resourceGroups/g","ownership":"created"}
{"entry":"wri"#;
    std::fs::write(path.join("journal.jsonl"), content).unwrap();
    let journal = open(path.clone(), &cluster()).await.unwrap();
    assert_eq!(journal.state().get(&ResourceKey::new("g")).unwrap().ownership, Ownership::Created);
    assert!(journal.state().unfinished_run(&INFRA).is_none());
    journal.record(&started(RunCommand::Apply)).await.unwrap();
    journal.close().await.unwrap();
    let journal = open(path, &cluster()).await.unwrap();
    assert!(journal.state().unfinished_run(&INFRA).is_some());
}

#[test]
fn journals_of_others_and_of_later_versions_are_rejected() {
    let line = |version: u32, name: &str| {
        json!({ "entry": "cluster", "version": version, "name": name, "infraId": "harbour-x7k2p",
            "subscription": "s" })
        .to_string()
            + "\n"
    };
    let hint = |content: &str| {
        parse_state(content, &cluster(), is_network).map_err(|error| error.to_string())
    };
    assert!(hint(&line(3, "harbour")).is_ok());
    assert!(hint(&line(4, "harbour")).unwrap_err().contains("has format 4"));
    assert!(hint(&line(3, "other")).unwrap_err().contains("belongs to the cluster `other"));
    let no_cluster = json!({ "entry": "removed", "at": AT, "key": "g" }).to_string() + "\n";
    assert!(hint(&no_cluster).unwrap_err().contains("does not begin"));
    assert_eq!(parse_cluster(&line(3, "harbour")).unwrap(), Some(cluster()));
    assert_eq!(parse_cluster(line(3, "harbour").trim_end()).unwrap(), None);
    assert!(parse_cluster(&no_cluster).is_err());
}

#[tokio::test]
async fn second_command_on_a_directory_is_rejected_until_the_first_one_has_closed_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let first = open(path.clone(), &cluster()).await.unwrap();
    let error = open(path.clone(), &cluster()).await.unwrap_err();
    assert!(matches!(&error, JournalError::Store { source } if source.is_locked()), "{error:?}");
    first.close().await.unwrap();
    open(path, &cluster()).await.unwrap();
}

#[test]
fn successful_run_leaves_nothing_to_undo() {
    let run = [
        started(RunCommand::Apply),
        writing("g", WriteKind::Create, None),
        recorded("g", Ownership::Created),
        ended(),
    ];
    assert_eq!(undo_actions(&run), None);
    assert_eq!(undo_actions(&run[..3]), Some(vec![("g".to_owned(), UndoAction::Delete)]));
    assert_eq!(undo_actions(&run[..1]), Some(Vec::new()));
    // Writes of a journal of format 1 belong to no run.
    assert_eq!(undo_actions(&run[1..3]), None);
}

#[test]
fn first_change_of_an_unfinished_run_determines_how_it_is_undone() {
    let (first, second) = (json!({ "a": 1 }), json!({ "a": 2 }));
    let update = |body: &serde_json::Value| writing("r", WriteKind::Update, Some(body.clone()));
    let delete = |body: &serde_json::Value| writing("r", WriteKind::Delete, Some(body.clone()));
    let create = || writing("r", WriteKind::Create, None);
    let start = || started(RunCommand::Apply);
    let restore = UndoAction::Restore { before: first.clone(), desired: None };
    let recreate =
        |replaced| UndoAction::Recreate { before: first.clone(), desired: None, replaced };
    let cases: [(&str, Vec<JournalEntry>, Option<UndoAction>); 9] = [
        (
            "continued update",
            vec![start(), update(&first), start(), update(&second)],
            Some(restore),
        ),
        ("update of a new one", vec![start(), create(), update(&first)], Some(UndoAction::Delete)),
        (
            "replacement",
            vec![start(), delete(&first), removed("r"), create()],
            Some(recreate(true)),
        ),
        (
            "update and deletion",
            vec![start(), update(&first), delete(&second), removed("r")],
            Some(recreate(false)),
        ),
        ("announced deletion", vec![start(), delete(&first)], Some(recreate(false))),
        ("deletion of a new one", vec![start(), create(), delete(&first), removed("r")], None),
        (
            "conflict with an equal one",
            vec![start(), create(), recorded("r", Ownership::Existing)],
            None,
        ),
        (
            "deletion by destroy",
            vec![start(), create(), started(RunCommand::Destroy), removed("r")],
            None,
        ),
        (
            "creation after an interrupted destroy",
            vec![started(RunCommand::Destroy), delete(&first), removed("r"), start(), create()],
            Some(UndoAction::Delete),
        ),
    ];
    for (name, entries, expected) in cases {
        let found = undo_actions(&entries).unwrap().into_iter().map(|(_, undo)| undo).next();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn earlier_record_of_a_key_is_kept_when_its_id_changes() {
    let other = JournalEntry::Recorded {
        at: AT,
        key: ResourceKey::new("g"),
        stack: INFRA,
        id: "/subscriptions/s/resourceGroups/user".parse().unwrap(),
        ownership: Ownership::Existing,
        depends_on: Vec::new(),
        created: None,
    };
    let earlier = recorded("g", Ownership::Created);
    let run = [earlier.clone(), started(RunCommand::Apply), earlier, other];
    assert_eq!(undo_actions(&run[..3]), Some(Vec::new()));
    assert_eq!(undo_actions(&run), Some(vec![("g".to_owned(), UndoAction::RecordEarlier)]));
}

#[tokio::test]
async fn write_in_progress_stops_after_a_failed_append() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path().to_owned(), &cluster()).await.unwrap();
    let failing = async {
        tokio::task::yield_now().await;
        journal.failure.send_replace(Some("no space left on device".to_owned()));
    };
    let work = journal.while_writable(std::future::pending::<Result<(), JournalError>>());
    let (stopped, ()) = tokio::join!(work, failing);
    let text = stopped.unwrap_err().to_string();
    assert!(text.contains("no space left on device"), "{text}");
    assert!(matches!(
        journal.record(&started(RunCommand::Apply)).await,
        Err(JournalError::Stopped { .. })
    ));
}

#[test]
fn entry_for_another_subscription_or_type_is_rejected() {
    const FIRST: &str = r#"{"entry":"cluster","version":3,"name":"harbour","infraId":"harbour-x7k2p","subscription":"s"}"#;
    let group = "/subscriptions/s/resourceGroups/g";
    let vault = format!("{group}/providers/Microsoft.KeyVault/vaults/v");
    let role = "providers/Microsoft.Authorization/roleAssignments/a";
    for (id, ownership, is_accepted) in [
        (group.to_owned(), "created", true),
        ("/subscriptions/other/resourceGroups/g".to_owned(), "created", false),
        ("/subscriptions/other/resourceGroups/g".to_owned(), "existing", true),
        (vault, "imported", false),
        (format!("{group}/providers/Microsoft.Network/virtualNetworks/v"), "imported", true),
        (format!("/subscriptions/other/resourceGroups/net/{role}"), "created", true),
    ] {
        let entry = json!({ "entry": "recorded", "at": AT, "key": "k", "stack": "infra", "id": id,
            "ownership": ownership });
        let state = parse_state(&format!("{FIRST}\n{entry}\n"), &cluster(), is_network);
        assert_eq!(state.is_ok(), is_accepted, "{id} {ownership}");
        if let Err(error) = state {
            assert!(error.to_string().starts_with("line 2 of the journal names"), "{error}");
        }
    }
}

#[test]
fn change_of_a_resource_of_the_user_never_makes_it_lanyard_s() {
    const FIRST: &str = r#"{"entry":"cluster","version":3,"name":"harbour","infraId":"harbour-x7k2p","subscription":"s"}"#;
    let created = json!({ "entry": "recorded", "at": AT, "key": "k", "stack": "infra",
        "id": "/subscriptions/s/resourceGroups/g", "ownership": "created" });
    let adjusted = json!({ "entry": "writing", "at": AT, "key": "k", "stack": "infra",
        "id": "/subscriptions/other/resourceGroups/g", "write": "adjust" });
    let text = format!("{FIRST}\n{created}\n{adjusted}\n");
    let state = parse_state(&text, &cluster(), is_network).unwrap();
    let record = state.get(&ResourceKey::new("k")).unwrap();
    assert_eq!(record.ownership, Ownership::Existing);
    assert_eq!(record.creation, CreationEvidence::Unknown);
}

#[tokio::test]
async fn journal_that_others_can_write_to_or_that_is_damaged_is_rejected() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    drop(open(path.clone(), &cluster()).await.unwrap());
    let open_with = async |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        open(path.clone(), &cluster()).await.map(drop).map_err(|error| {
            let hint = error.hint().unwrap_or_default();
            format!("{}: {hint}", format_error_chain(&error))
        })
    };
    assert!(open_with(0o755).await.is_ok());
    for mode in [0o777, 0o775] {
        let error = open_with(mode).await.unwrap_err();
        assert!(
            error.contains("written by other users") && error.contains("chmod go-w"),
            "{error}"
        );
    }
    std::fs::write(path.join("journal.jsonl"), b"\xff\n").unwrap();
    let error = open_with(0o700).await.unwrap_err();
    assert!(error.contains("is damaged") && error.contains("from a backup"), "{error}");
}

#[tokio::test]
async fn journal_above_the_size_limit_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    drop(open(path.clone(), &cluster()).await.unwrap());
    let file = std::fs::File::options().write(true).open(path.join("journal.jsonl")).unwrap();
    // The file has no blocks on the disk behind its first line.
    file.set_len(50_000_001).unwrap();
    let opened = open(path.clone(), &cluster()).await.map(drop).unwrap_err();
    let read = directory::JournalDirectory::read(&path).unwrap_err();
    for text in [format_error_chain(&opened), format_error_chain(&read)] {
        assert!(text.ends_with("journal.jsonl has more than 50000000 bytes"), "{text}");
    }
    assert!(opened.hint().unwrap().contains("lanyard import azure"));
    assert_eq!(file.metadata().unwrap().len(), 50_000_001);
}

#[tokio::test]
async fn spelling_of_the_subscription_does_not_make_another_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let of =
        |subscription: &str| JournalCluster { subscription: subscription.to_owned(), ..cluster() };
    drop(open(path.clone(), &of("5abc")).await.unwrap());
    drop(open(path.clone(), &of("5ABC")).await.unwrap());
    let error = open(path, &of("6abc")).await.map(drop).unwrap_err();
    assert!(matches!(error, JournalError::OtherCluster { .. }), "{error:?}");
}

#[tokio::test]
async fn removed_journal_stops_the_run_and_the_directory_stays_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let journal = open(path.clone(), &cluster()).await.unwrap();
    std::fs::remove_file(path.join("journal.jsonl")).unwrap();
    let second = open(path, &cluster()).await.map(drop);
    let text = format_error_chain(&second.unwrap_err());
    assert!(text.contains("another command uses"), "{text}");
    let error = journal.record(&started(RunCommand::Apply)).await.unwrap_err();
    assert!(format_error_chain(&error).contains("removed or replaced"), "{error:?}");
}
