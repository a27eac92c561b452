//! `pinrail topo`, and machines in XML.

#[cfg(feature = "topology")]
mod with_the_feature {
    use std::fs;

    use serde_json::{Value, json};

    use crate::support::{self, batch, folder, pinrail, refused, run, workspace};

    /// Two GPUs, each at a switch with a NIC of its own.
    const NCCL: &str = r#"<system version="1"><cpu numaid="0">
        <pci busid="ffff:ff:01.0" class="0x060400">
          <pci busid="0000:10:1c.0" class="0x030200" vendor="0x10de" device="0x20b0"/>
          <pci busid="0000:10:1b.0" class="0x020000" vendor="0x1d0f" device="0xefa1"/>
        </pci>
        <pci busid="ffff:ff:02.0" class="0x060400">
          <pci busid="0000:20:1c.0" class="0x030200" vendor="0x10de" device="0x20b0"/>
          <pci busid="0000:20:1b.0" class="0x020000" vendor="0x1d0f" device="0xefa1"/>
        </pci></cpu></system>"#;

    fn file() -> String {
        let path = folder(&format!("nccl-{:?}", std::thread::current().id())).join("node.xml");
        fs::write(&path, NCCL).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_machine_is_shown_with_the_rails_that_memory_gets() {
        let topo = support::json(["topo", "--machine", &file()]);
        let parts: Vec<_> = topo.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(parts, ["gpus", "nodes", "notes", "rails"]);
        let names: Vec<&Value> = topo["rails"].as_array().unwrap().iter().map(|rail| &rail["name"]).collect();
        let rail = |at: usize, pci: &str| json!({"name": names[at], "pci": pci, "node": 0, "mbps": 100_000, "state": "unknown"});
        assert_eq!(topo["rails"], json!([rail(0, "0000:10:1b.0"), rail(1, "0000:20:1b.0")]));
        let gpu = |pci: &str, at: usize| json!({"pci": pci, "node": 0, "rails": [names[at]], "path": "PIX", "mbps": 100_000, "fallback": null});
        assert_eq!(topo["gpus"], json!([gpu("0000:10:1c.0", 0), gpu("0000:20:1c.0", 1)]));
        assert_eq!((&topo["nodes"][0]["node"], &topo["nodes"][0]["rails"]), (&json!(0), &json!(names)));
        let human = run(pinrail().args(["topo", "--machine", &file()]));
        for part in ["GPU0  GPU1", "GPU 0000:20:1c.0       PIX   100 Gb/s  ", "all usable rails together reach 200 Gb/s"] {
            assert!(human.out.contains(part), "{part}: {human:?}");
        }
    }

    #[test]
    fn what_is_saved_is_the_same_machine() {
        let saved = folder("saved").join("machine.toml");
        let saved = saved.to_str().unwrap();
        let topo = support::json(["topo", "--machine", &file(), "--save", saved]);
        assert_eq!(support::json(["topo", "--machine", saved]), topo);
        refused(&["topo", "--machine", saved, "--save", "/nonexistent/machine.toml"], "io", 1);
        let printed = run(pinrail().args(["topo", "--machine", saved, "--save", "-"]));
        assert_eq!(printed.out, fs::read_to_string(saved).unwrap(), "and nothing else");
    }

    #[test]
    fn a_machine_without_rails_says_so_for_everything_on_it() {
        let path = folder("bare").join("machine.toml");
        fs::write(&path, "version = 1\n[[gpu]]\npci = \"53:00.0\"\nnode = 0\n").unwrap();
        let topo = support::json(["topo", "--machine", path.to_str().unwrap()]);
        assert_eq!((&topo["gpus"][0]["rails"], &topo["gpus"][0]["fallback"]), (&json!([]), &json!("the machine has no rail")));
    }

    #[test]
    fn this_host_can_be_shown() {
        let topo = support::json(["topo"]);
        let nodes = topo["nodes"].as_array().unwrap().len();
        assert!(nodes > 0, "every Linux has a node: {topo}");
    }

    #[test]
    fn a_plan_on_a_machine_in_xml_keeps_each_gpu_to_its_own_rails() {
        let path = batch("on-gpus", r#"{"buffers":[{"len":4096,"memory":"gpu:20:1c.0"},{"len":4096,"memory":"gpu:10:1c.0"}]}"#);
        let plan = support::json(["plan", "--batch", path.to_str().unwrap(), "--machine", &file()]);
        let by_rail: Vec<(&Value, &Value)> =
            plan["rails"].as_array().unwrap().iter().map(|rail| (&rail["mrs"], &rail["bytes"])).collect();
        assert_eq!(by_rail, [(&json!(1), &json!(4096)); 2]);
        assert_eq!(plan["buffers"][0]["rails"], json!([plan["rails"][1]["rail"]]));
        let elsewhere = batch("elsewhere", r#"{"buffers":[{"len":4096,"memory":"gpu:99:00.0"}]}"#);
        let machine = file();
        let error = refused(&["plan", "--batch", elsewhere.to_str().unwrap(), "--machine", &machine], "unknown-device", 1);
        assert!(error["message"].as_str().unwrap().contains("0000:10:1c.0"), "it names the GPUs there are: {error}");
    }

    #[test]
    fn every_file_there_is_can_be_shown() {
        let shared = workspace().join("../shared/topologies");
        let mut folders = vec![shared.clone()];
        let mut shown = 0;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "xml") {
                    support::json(["topo", "--machine", path.to_str().unwrap()]);
                    assert_eq!(run(pinrail().args(["topo", "--machine"]).arg(path)).exit, Some(0));
                    shown += 1;
                }
            }
        }
        if shown == 0 {
            eprintln!("SKIPPED: {} has no machine", shared.display());
        }
    }
}

#[cfg(not(feature = "topology"))]
mod without_the_feature {
    use std::fs;

    use crate::support::{folder, refused};

    #[test]
    fn the_command_and_machines_in_xml_name_the_feature() {
        let path = folder("xml").join("node.xml");
        fs::write(&path, "<system version=\"1\"/>").unwrap();
        for arguments in [&["topo"][..], &["plan", "--batch", "1x4096", "--machine", path.to_str().unwrap()]] {
            let error = refused(arguments, "not-supported", 1);
            assert!(error["hint"].as_str().unwrap().contains("--features topology"), "{error}");
        }
    }
}

#[test]
fn a_machine_file_that_is_too_large_is_refused_before_it_is_read() {
    let path = crate::support::folder("large-machine").join("machine.toml");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let error = crate::support::refused(&["plan", "--batch", "1x4096", "--machine", path.to_str().unwrap()], "usage", 2);
    assert_eq!((&error["limit"], &error["need"]), (&(16u64 << 20).into(), &(1u64 << 30).into()));
}
