//! What lies at the path: made, accepted or refused, with the reason.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use pinrail_node::{Degraded, FileError, NodeBudget};

use crate::node::{Node, config, config_here};
use crate::{child, skip};

/// Why the file of a node's folder cannot be used; what such a process may do must not suffer.
fn refusal(folder: &Path) -> FileError {
    let budget = NodeBudget::open(config(folder, 3));
    let tokens: Vec<_> = (0..3).map(|_| budget.try_acquire().expect("the whole share, as it is alone")).collect();
    assert!(budget.try_acquire().is_none(), "and no more");
    drop(tokens);
    match budget.degraded() {
        Some(Degraded::File(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn everyone_may_write_whatever_the_umask_says() {
    let node = Node::new();
    child::run(&node, &["sh", "-c", r#"umask 077; exec "$0" "$@""#], "files::child_opens");
    assert_eq!(fs::metadata(node.file()).unwrap().permissions().mode() & 0o7777, 0o666);
}

#[test]
#[ignore = "started with another umask"]
fn child_opens() {
    assert_eq!(NodeBudget::open(config_here(2)).degraded(), None);
}

#[test]
fn a_symbolic_link_is_not_followed() {
    let node = Node::new();
    let target = node.folder().join("target");
    fs::write(&target, "precious").unwrap();
    for target in [target.as_path(), Path::new("nowhere")] {
        symlink(target, node.file()).unwrap();
        assert_eq!(refusal(node.folder()), FileError::Link { path: node.file() });
        fs::remove_file(node.file()).unwrap();
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "precious");
    assert!(!node.folder().join("nowhere").exists());
}

#[test]
fn only_a_regular_file_with_one_name_is_used() {
    let node = Node::new();
    fs::create_dir(node.file()).unwrap();
    assert!(matches!(refusal(node.folder()), FileError::Call { call: "open", errno: 21, .. }), "EISDIR");
    fs::remove_dir(node.file()).unwrap();

    let precious = node.folder().join("precious");
    fs::write(&precious, "").unwrap();
    fs::hard_link(&precious, node.file()).unwrap();
    assert!(matches!(refusal(node.folder()), FileError::Kind { links: 2, .. }));
    assert_eq!(fs::metadata(&precious).unwrap().len(), 0, "nothing is written to it");
    fs::remove_file(node.file()).unwrap();

    if Command::new("mkfifo").arg(node.file()).status().is_ok_and(|status| status.success()) {
        assert!(matches!(refusal(node.folder()), FileError::Kind { links: 1, .. }), "and nobody waits for its other end");
    } else {
        skip("mkfifo cannot be run");
    }
}

#[test]
fn a_file_of_another_user_is_refused_and_roots_is_not() {
    let node = Node::new();
    if !child::is_root() {
        return skip("only root can give files away");
    }
    drop(node.open(2));
    assert!(child::run_as_nobody(&node, "files::child_opens"), "root's file is everyone's");
    std::os::unix::fs::chown(node.file(), Some(4711), None).unwrap();
    assert_eq!(refusal(node.folder()), FileError::Owner { path: node.file(), owner: 4711, us: 0 });
}

#[test]
fn a_file_that_may_only_be_read_is_refused() {
    let node = Node::new();
    fs::write(node.file(), "").unwrap();
    fs::set_permissions(node.file(), fs::Permissions::from_mode(0o444)).unwrap();
    if !child::run_as_nobody(&node, "files::child_may_only_read") {
        assert!(matches!(refusal(node.folder()), FileError::Call { call: "open", errno: 13, .. }), "EACCES");
    }
}

#[test]
#[ignore = "started as another user"]
fn child_may_only_read() {
    assert!(matches!(refusal(&std::env::current_dir().unwrap()), FileError::Call { call: "open", errno: 13, .. }), "EACCES");
}

#[test]
fn a_file_system_that_may_only_be_read_is_refused() {
    let node = Node::new();
    let line = r#"mount -t tmpfs -o ro tmpfs "$PWD""#;
    child::run_unshared(&node, line, "files::child_is_on_a_read_only_file_system");
}

#[test]
#[ignore = "started in a namespace of its own"]
fn child_is_on_a_read_only_file_system() {
    assert!(matches!(refusal(&std::env::current_dir().unwrap()), FileError::Call { call: "open", errno: 30, .. }), "EROFS");
}

#[test]
fn a_disk_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("node-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    match NodeBudget::open(config(&folder, 3)).degraded() {
        None => skip("the target folder is on a tmpfs"),
        Some(why) => assert_eq!(why, Degraded::File(FileError::NotInMemory { path: folder.join("budget") })),
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_full_dev_shm_is_said_to_be_full() {
    let node = Node::new();
    for line in [
        r#"mount -t tmpfs -o size=4k tmpfs "$PWD" && cd "$PWD" && head -c 4096 /dev/zero >filler"#,
        r#"mount -t tmpfs -o nr_inodes=1 tmpfs "$PWD""#,
    ] {
        child::run_unshared(&node, line, "files::child_has_no_room");
    }
}

#[test]
#[ignore = "started in a namespace of its own"]
fn child_has_no_room() {
    let folder = std::env::current_dir().unwrap();
    assert_eq!(refusal(&folder), FileError::Full { path: folder.join("budget") });
}

#[test]
fn whatever_the_file_holds_is_good() {
    let node = Node::new();
    for contents in [vec![], vec![0xFF; 3], vec![0xFF; 1 << 20]] {
        fs::write(node.file(), contents).unwrap();
        let (one, other) = (node.open(2), node.open(2));
        let held: Vec<_> = (0..3).map(|_| one.try_acquire().unwrap()).collect();
        let own = other.try_acquire().unwrap();
        assert!(one.try_acquire().is_none() && other.try_acquire().is_none());
        // Nobody dies of a file that is cut short under him.
        fs::File::options().write(true).open(node.file()).unwrap().set_len(0).unwrap();
        drop(held);
        assert!(other.try_acquire().is_some());
        drop(own);
    }
}

#[test]
fn a_file_that_was_replaced_is_opened_again() {
    let node = Node::new();
    let (one, other) = (node.open(2), node.open(2));
    let kept: Vec<_> = (0..3).map(|_| one.try_acquire().unwrap()).collect();
    let inode = || fs::metadata(node.file()).unwrap().ino();
    let before = inode();
    fs::remove_file(node.file()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    let own = other.try_acquire().unwrap();
    let of_new = other.try_acquire().expect("nobody has a token of the new file");
    assert!(of_new.of_node().is_some() && inode() != before);
    assert!(one.try_acquire().is_some_and(|token| token.of_node().is_some()), "the other one follows");
    assert_eq!((one.processes().get(), one.degraded()), (2, None));
    drop((kept, own, of_new));
    // What was held of the old file went back to the old file.
    let again: Vec<_> = (0..3).map(|_| one.try_acquire().unwrap()).collect();
    drop(again);
}
