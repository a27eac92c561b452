//! Limits on time: this thread's, so that a busy machine fails nothing; each the best of some runs.

use std::fmt::Write as _;
use std::time::Duration;

use pinrail_topology::read;
use rustix::time::{ClockId, clock_gettime};

fn best_of(runs: u32, mut work: impl FnMut()) -> Duration {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("time used is not negative");
    let run = |_| {
        let before = used();
        work();
        used() - before
    };
    (0..runs).map(run).min().expect("at least one run")
}

/// An hwloc XML of some length: packages of cores, and switches with NICs and GPUs.
fn host(bytes_min: usize) -> String {
    let mut xml = String::from("<topology version=\"2.0\"><object type=\"Machine\">");
    let cpus = "0xffffffff,".repeat(8);
    for switch in 0u32.. {
        if xml.len() >= bytes_min {
            break;
        }
        write!(xml, "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"{switch:04x}:[00-ff]\">").unwrap();
        for slot in 1..32 {
            let object = |xml: &mut String, class: &str, function: u32| {
                write!(xml, "<object type=\"PCIDev\" pci_busid=\"{switch:04x}:01:{slot:02x}.{function}\" pci_type=\"{class} [15b3:0000] 00\" pci_link_speed=\"31.507692\">").unwrap();
                write!(xml, "<info name=\"PCIVendor\" value=\"Mellanox Technologies\"/><info name=\"PCIDevice\" value=\"MT2910 Family [ConnectX-7]\"/>").unwrap();
            };
            object(&mut xml, "0207 [15b3:1021]", 0);
            write!(xml, "<object type=\"OSDev\" name=\"mlx5_{switch}_{slot}\" osdev_type=\"3\"><info name=\"Port1State\" value=\"4\"/></object></object>").unwrap();
            object(&mut xml, "0302 [10de:2330]", 1);
            xml.push_str("</object>");
            write!(xml, "<object type=\"Core\" os_index=\"{slot}\" complete_cpuset=\"{cpus}\" cpuset=\"{cpus}\"/>").unwrap();
        }
        xml.push_str("</object>");
    }
    xml + "</object></topology>"
}

#[test]
fn three_hundred_kilobytes_are_read_in_20_ms() {
    let xml = host(300_000);
    assert!(read(xml.as_bytes()).unwrap().machine.rails.len() > 200);
    let took = best_of(10, || drop(read(xml.as_bytes())));
    assert!(took < Duration::from_millis(20), "{} bytes took {took:?}", xml.len());
}

#[test]
fn nothing_takes_longer_than_its_length() {
    let mib = |unit: &str, count: usize| unit.repeat((count << 20) / unit.len());
    let attributes = (0..200_000).map(|at| format!(" a{at}=''")).collect::<String>();
    let pci = (0..40_000).map(|at| format!("<pci busid='{at:x}:0:0.0' class='0x030200'/>")).collect::<String>();
    let bridges = "<object type='Bridge' bridge_pci='0000:[00-00]'>".repeat(60_000);
    let gpus = "<object type='PCIDev' pci_busid='1:0.0' pci_type='0302 [10de:0000]'/>".repeat(60_000);
    let files = [
        ("one element with many attributes", format!("<system{attributes}/>")),
        ("deep", format!("<system>{}{}</system>", mib("<pci>", 1), mib("</pci>", 1))),
        ("switches of one name", format!("<system>{}</system>", mib("<pci class='0x060400'/>", 2))),
        ("more GPUs than a machine may have", format!("<system>{pci}</system>")),
        ("GPUs below more bridges than PCI has", format!("<topology>{bridges}{gpus}{}</topology>", "</object>".repeat(60_000))),
        ("ports of one device", format!("<system>{}</system>", mib("<net name='a'/>", 2))),
        ("open tags", mib("<", 4)),
        ("comments", format!("<system>{}</system>", mib("<!---->", 4))),
    ];
    for (what, file) in files {
        let took = best_of(1, || drop(read(file.as_bytes())));
        assert!(took < Duration::from_secs(3), "{what}: {} bytes took {took:?}", file.len());
    }
}
