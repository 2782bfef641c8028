// std::regex over the lines of standard input: matches, groups, replacements, iterators, and a pattern that is refused.
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

int main() {
    std::vector<std::string> lines;
    for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
    const char *const patterns[] = {R"((\w+)\s+(\w+))", R"(\b\d{2,4}\b)", R"(^(?:a|b)+?c?$)", R"(([aeiou])\1)", R"([^\s]+@[a-z.]+)", R"((\d+)-(?=\d))"};
    for (const char *text : patterns) {
        const std::regex pattern(text, std::regex::ECMAScript | std::regex::icase);
        std::cout << "/" << text << "/\n";
        for (std::size_t n = 0; n < lines.size(); n++) {
            const auto end = std::sregex_iterator();
            for (auto it = std::sregex_iterator(lines[n].begin(), lines[n].end(), pattern); it != end; ++it) {
                std::cout << "  " << n + 1 << " at " << it->position();
                for (const auto &group : *it) std::cout << " '" << group << "'";
                std::cout << '\n';
            }
        }
    }
    for (const auto &line : lines) std::cout << std::regex_replace(line, std::regex(R"((\w)(\w*))"), "$2$1ay") << '\n';
    const std::regex comma(R"(\s*[,;]\s*)");
    const std::string list = "one, two ;three,four";
    std::copy(std::sregex_token_iterator(list.begin(), list.end(), comma, -1), {}, std::ostream_iterator<std::string>(std::cout, "|"));
    try {
        std::regex bad("(unclosed[");
    } catch (const std::regex_error &error) {
        std::cout << "\nrefused: " << (error.code() == std::regex_constants::error_brack) << '\n';
    }
    return static_cast<int>(lines.size());
}
