/* Asks the C library for the addresses of a name, or for the name of an address, as any program does. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words) {
    if (count != 2) return 2;
    struct sockaddr_in known = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, words[1], &known.sin_addr) == 1) {
        char name[NI_MAXHOST];
        int failed = getnameinfo((struct sockaddr *)&known, sizeof known, name, sizeof name, 0, 0, NI_NAMEREQD);
        puts(failed ? gai_strerror(failed) : name);
        return failed != 0;
    }
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = 0;
    int failed = getaddrinfo(words[1], 0, &wanted, &found);
    if (failed) {
        puts(gai_strerror(failed));
        return 1;
    }
    for (; found; found = found->ai_next) {
        char text[INET6_ADDRSTRLEN];
        void *address = found->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)found->ai_addr)->sin_addr
                                                    : (void *)&((struct sockaddr_in6 *)found->ai_addr)->sin6_addr;
        puts(inet_ntop(found->ai_family, address, text, sizeof text));
    }
    return 0;
}
