/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program with USDT probes, which obeys the lines of its standard input and answers each with a line. With LIBRARY
 * defined, it is a library with a probe. The notes are as described on
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation; no header of systemtap is needed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The address of this byte tells by how much the sections were moved after the notes were written. */
__asm__(".pushsection .stapsdt.base, \"a\", @progbits\n"
	"_.stapsdt.base: .space 1\n"
	".popsection");

/*
 * A place with a probe: an instruction that does nothing, and the note that describes it. The assembler writes the
 * operand of the argument into the note.
 */
#define PROBE(provider, name, counter, arguments, ...)				\
	__asm__ volatile("1: nop\n"						\
		".pushsection .note.stapsdt, \"\", @note\n"			\
		".balign 4\n"							\
		".4byte 3f - 2f, 5f - 4f, 3\n"					\
		"2: .asciz \"stapsdt\"\n"					\
		"3: .balign 4\n"						\
		"4: .8byte 1b, _.stapsdt.base, " counter "\n"			\
		".asciz \"" provider "\", \"" name "\", \"" arguments "\"\n"	\
		"5: .balign 4\n"						\
		".popsection" : : __VA_ARGS__)

#ifdef LIBRARY

void library_call(void)
{
	PROBE("demo", "library__call", "0", "");
}

#else

/* How many watch the probe demo:tick. */
__attribute__((used, section(".probes"), visibility("hidden"))) volatile unsigned short tick_counter;

static void __attribute__((noinline)) mark(const char *text)
{
	PROBE("isotherm", "mark", "0", "8@%0", "r"(text));
}

static void __attribute__((noinline)) mark_in_memory(const char *text)
{
	const char *volatile pointers[3] = { 0, 0, text };

	PROBE("isotherm", "mark", "0", "8@%0 -4@%1", "m"(pointers[2]), "n"(7));
}

static void __attribute__((noinline)) mark_constant(void)
{
	/* No page of it has been read before. */
	static const char text[3 << 12] __attribute__((aligned(4096))) = { [4090] = 'f', 'a', 'r', ' ', 'a', 'w', 'a', 'y' };

	PROBE("isotherm", "mark", "0", "8@%0", "r"(text + 4090));
}

static void __attribute__((noinline)) tick(void)
{
	PROBE("demo", "tick", "tick_counter", "");
}

static void start_child(const char *program, const char *argument)
{
	pid_t child = fork();

	if (child == 0) {
		if (program) {
			execl(program, program, argument, (char *)0);
			_exit(1);
		}
		mark(argument);
		_exit(0);
	}
	waitpid(child, 0, 0);
}

static void load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*call)(void);

	*(void **)&call = library ? dlsym(library, "library_call") : 0;
	if (!call)
		exit(1);
	call();
}

int main(int count, char **arguments)
{
	char line[1024];

	if (count > 1) {
		mark(arguments[1]);
		return 0;
	}
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		if (rest)
			*rest++ = 0;
		else
			rest = "";
		if (!strcmp(line, "mark"))
			mark(rest);
		else if (!strcmp(line, "memory"))
			mark_in_memory(rest);
		else if (!strcmp(line, "constant"))
			mark_constant();
		else if (!strcmp(line, "tick"))
			tick();
		else if (!strcmp(line, "ticks"))
			for (long left = atol(rest); left > 0; left--)
				tick();
		else if (!strcmp(line, "fork"))
			start_child(0, rest);
		else if (!strcmp(line, "exec"))
			start_child("/proc/self/exe", rest);
		else if (!strcmp(line, "load"))
			load(rest);
		else if (strcmp(line, "watchers"))
			return 1;
		printf("%d\n", tick_counter);
		fflush(stdout);
	}
	return 0;
}

#endif
