//! Files by their names: their times by each call that sets them, and programs whose loader's name has zeros behind it.

use crate::alarms::as_natively;

#[test]
fn a_file_gets_its_times_by_each_call() {
    as_natively(
        "times",
        r#"
        #include <sys/stat.h>
        #include <utime.h>
        static char path[] = "/tmp/gretel-times-XXXXXX";
        static void are(void) {
            struct stat status; stat(path, &status);
            int late = status.st_mtime > 1000000000;
            SAY("%ld %ld\n", late ? 0 : status.st_atim.tv_sec * 1000000000 + status.st_atim.tv_nsec, late ? 0 : status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec);
        }
        int main(void) {
            struct utimbuf seconds = { 3, 4 }; struct timeval times[2] = { { 5, 6 }, { 7, 8 } };
            close(mkstemp(path));
            TRY(syscall(SYS_utime, path, &seconds)); are();
            TRY(syscall(SYS_utime, path, 0)); are();
            seconds = (struct utimbuf){ -1, 0 }; TRY(syscall(SYS_utime, path, &seconds)); are();
            TRY(syscall(SYS_utimes, path, times)); are();
            times[1].tv_usec = 1000000; TRY(syscall(SYS_utimes, path, times));
            TRY(syscall(SYS_utime, path, 8)); TRY(syscall(SYS_utime, 8, &seconds)); TRY(syscall(SYS_utime, "/tmp/gretel-none", 0)); TRY(syscall(SYS_utime, "", 0));
            unlink(path);
        }
        "#,
    );
}

#[test]
fn a_loaders_name_ends_at_its_first_zero() {
    as_natively(
        "padded",
        r#"
        #include <elf.h>
        #include <stddef.h>
        // What is at 0x400078 ends with status 42.
        static struct { Elf64_Ehdr header; Elf64_Phdr programs[2]; char code[16], name[64]; } file = {
            { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT }, .e_type = ET_EXEC, .e_machine = EM_X86_64, .e_version = EV_CURRENT,
              .e_phoff = 64, .e_ehsize = 64, .e_phentsize = 56, .e_phnum = 2 },
            { { .p_type = PT_LOAD, .p_flags = PF_R | PF_X }, { .p_type = PT_INTERP, .p_flags = PF_R } },
            { 0xb8, 231, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 0x05 }, "" };
        static char path[] = "/tmp/gretel-padded-XXXXXX", loader[] = "/tmp/gretel-loader-XXXXXX";
        static void make(char *name, int type, unsigned long base, const char *by, int length) {
            int made = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);
            fchmod(made, 0700);
            file.header.e_type = type;
            file.header.e_phnum = by ? 2 : 1;
            file.header.e_entry = base + offsetof(typeof(file), code);
            file.programs[0].p_vaddr = base;
            file.programs[0].p_filesz = file.programs[0].p_memsz = sizeof file;
            file.programs[1].p_offset = offsetof(typeof(file), name);
            file.programs[1].p_filesz = length;
            memset(file.name, 0, sizeof file.name);
            if (by) strcpy(file.name, by);
            write(made, &file, sizeof file);
            close(made);
        }
        static void runs(const char *by, int length) {
            char *none[] = { 0 };
            int status;
            make(path, ET_EXEC, 0x400000, by, length);
            pid_t child = fork();
            if (child == 0) { execve(path, none, none); SAY("%s\n", strerror(errno)); _exit(1); }
            waitpid(child, &status, 0);
            SAY("%x\n", status);
        }
        int main(void) {
            close(mkstemp(path)), close(mkstemp(loader));
            make(loader, ET_DYN, 0, 0, 0);
            runs(loader, strlen(loader) + 1); runs(loader, strlen(loader) + 20); runs(loader, strlen(loader));
            runs("/nonexistent", 13); runs("/nonexistent", 30); runs("/tmp", 30);
            unlink(path), unlink(loader);
        }
        "#,
    );
}
