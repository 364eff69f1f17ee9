use super::*;

#[test]
fn what_was_not_synced_may_be_lost() {
    let disk = SimulatedDisk::new();
    let file = disk.create("a").expect("created");
    file.write_at(0, b"kept").expect("written");
    file.sync().expect("synced");
    assert!(disk.crash_all_lost().list().expect("lists").is_empty(), "its name was not synced");
    disk.sync().expect("synced");
    file.write_at(2, b"st").expect("written");
    let lost = disk.crash_all_lost().open("a").expect("there");
    let mut bytes = [0; 4];
    assert_eq!(lost.read_at(0, &mut bytes).expect("reads"), 4);
    assert_eq!(&bytes, b"kept");
    assert_eq!(file.read_at(0, &mut bytes).expect("reads"), 4);
    assert_eq!(&bytes, b"kest");
}
